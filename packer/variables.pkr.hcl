# What `make image` passes. A build in a cloud takes the same, and the section of its cloud below.

variable "package" {
  type        = string
  description = "The Debian package of Spillway, as make package built it."
}

variable "ansible_playbook" {
  type        = string
  default     = "ansible-playbook"
  description = "The program. The roles need ansible-core 2.16 or later."
}

variable "output" {
  type        = string
  description = "The directory that takes the image and the list of what is in it."
}

variable "update_cache" {
  type        = bool
  default     = true
  description = "Whether packages of Debian are fetched. The base of `make image` has them already."
}

variable "key" {
  type        = string
  description = "A private key (ed25519) by which the machine is reached. It does not stay in the image."
}

# An image of one's own machine room.

variable "base" {
  type        = string
  default     = ""
  description = "The disk to start with, made by package/base.py."
}

variable "kernel" {
  type    = string
  default = ""
}

variable "initramfs" {
  type    = string
  default = ""
}

# Clouds. Credentials come from the environment, as the tools of the cloud have them.

variable "key_name" {
  type        = string
  default     = ""
  description = "The name of the key in the cloud. Keys that this version of Packer makes are of RSA with SHA-1, which Debian 12 refuses."
}

variable "aws_region" {
  type    = string
  default = "eu-central-1"
}

variable "aws_instance_type" {
  type    = string
  default = "m6i.large"
}

variable "gcp_project" {
  type    = string
  default = ""
}

variable "gcp_zone" {
  type    = string
  default = "europe-west3-a"
}

variable "openstack_flavor" {
  type    = string
  default = "m1.medium"
}

variable "openstack_source_image" {
  type        = string
  default     = "debian-12"
  description = "The name of Debian's cloud image (generic) in this OpenStack."
}

variable "openstack_networks" {
  type    = list(string)
  default = []
}
