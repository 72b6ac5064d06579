# The base has no boot loader yet, so its kernel is given. The playbook installs the loader.

source "qemu" "spillway" {
  disk_image       = true
  iso_url          = var.base
  iso_checksum     = "none" # it was made a moment ago, on this machine
  vm_name          = "spillway.qcow2"
  output_directory = "${var.output}/qemu"
  format           = "qcow2"
  skip_resize_disk = true
  disk_interface   = "virtio"
  disk_discard     = "unmap"
  disk_compression = true
  net_device       = "virtio-net"

  # An emulated processor: no KVM is needed, and the image is the same.
  accelerator = "tcg"
  cpus        = 2
  memory      = 2048
  headless    = true
  disable_vnc = true
  boot_wait   = "1s"
  qemuargs = [
    ["-cpu", "Nehalem"],
    ["-kernel", var.kernel],
    ["-initrd", var.initramfs],
    ["-append", "root=LABEL=system rw console=ttyS0"],
    ["-serial", "file:${var.output}/console.log"],
  ]

  communicator           = "ssh"
  ssh_username           = "root"
  ssh_private_key_file   = var.key
  ssh_timeout            = "20m"
  ssh_handshake_attempts = 200
  shutdown_command       = "systemctl poweroff"
  shutdown_timeout       = "5m"
}
