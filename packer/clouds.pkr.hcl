# The same gateway, made of the Debian image of a cloud. There cloud-init makes the network, the keys
# of ssh and /etc/spillway-first-boot/spillway.toml (user data, write_files).

source "amazon-ebs" "spillway" {
  region        = var.aws_region
  instance_type = var.aws_instance_type
  ami_name      = "spillway-{{ timestamp }}"
  ena_support   = true

  source_ami_filter {
    most_recent = true
    owners      = ["136693071363"] # Debian
    filters = {
      name                = "debian-12-amd64-*"
      virtualization-type = "hvm"
      root-device-type    = "ebs"
    }
  }

  communicator         = "ssh"
  ssh_username         = "admin"
  ssh_keypair_name     = var.key_name
  ssh_private_key_file = var.key
}

source "googlecompute" "spillway" {
  project_id              = var.gcp_project
  zone                    = var.gcp_zone
  source_image_family     = "debian-12"
  source_image_project_id = ["debian-cloud"]
  image_name              = "spillway-{{ timestamp }}"
  image_family            = "spillway"

  communicator         = "ssh"
  ssh_username         = "packer"
  ssh_private_key_file = var.key
}

source "openstack" "spillway" {
  flavor            = var.openstack_flavor
  source_image_name = var.openstack_source_image
  networks          = var.openstack_networks
  image_name        = "spillway-{{ timestamp }}"

  communicator         = "ssh"
  ssh_username         = "debian"
  ssh_keypair_name     = var.key_name
  ssh_private_key_file = var.key
}
