build {
  sources = [
    "source.qemu.spillway",
    "source.amazon-ebs.spillway",
    "source.googlecompute.spillway",
    "source.openstack.spillway",
  ]

  provisioner "ansible" {
    command       = var.ansible_playbook
    playbook_file = "${path.root}/../ansible/image.yml"
    # Packer's own ssh server offers keys that today's ssh refuses.
    use_proxy = false
    ansible_env_vars = [
      "ANSIBLE_CONFIG=${path.root}/../ansible/ansible.cfg",
      "ANSIBLE_HOST_KEY_CHECKING=False",
      "ANSIBLE_TIMEOUT=60",
    ]
    extra_arguments = [
      "--extra-vars", "spillway_package=${var.package} base_update_cache=${var.update_cache}",
    ]
  }

  # What is in the image, for its bill of materials.
  provisioner "shell" {
    script          = "${path.root}/contents.sh"
    execute_command = "sudo=; [ $(id -u) = 0 ] || sudo=sudo; $sudo sh {{ .Path }}"
  }
  provisioner "file" {
    direction   = "download"
    source      = "/tmp/contents.tar"
    destination = "${var.output}/contents.tar"
  }

  provisioner "shell" {
    script          = "${path.root}/clear.sh"
    execute_command = "sudo=; [ $(id -u) = 0 ] || sudo=sudo; $sudo sh {{ .Path }}"
  }
}
