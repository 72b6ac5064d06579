# Spillway: everything a developer or CI runs. Each target does its own set-up on a bare Debian 12.
.PHONY: demo check graph test test-suites slow debian13 test-debian13 package-debian13 test-newer-client lint ceph frameworks slurm screenshots pynfs posix scale bench bench-quick bench-drain bench-cold bench-profile soak torture torture-cold build deps bench-deps package client client-test package-test lock ansible-lint appliance-test clean bench-admin image image-test powercut audit

# Otherwise each of the hundreds of processes that the tests start compiles its modules again.
unexport PYTHONDONTWRITEBYTECODE

BUILD := build
VENV := $(BUILD)/venv
PY := $(VENV)/bin/python
FRAMEWORKS := $(BUILD)/frameworks
ANSIBLE := $(BUILD)/ansible
AUDIT := $(BUILD)/audit
PLUGIN := $(BUILD)/lib/libfsalpython.so
GANESHA := $(BUILD)/ganesha
NFSLOAD := $(BUILD)/bench/nfsload
NFS3SAVE := $(BUILD)/bench/nfs3save
TRIXIE := $(BUILD)/trixie
NEWER_KERNEL = $$(ls -t $(TRIXIE)/vm/linux-image-*.deb | head -n 1)

# The versions of what pip installs, for this machine's Python: in the package, and for the tests.
LOCK := package/$(shell /usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])').lock
LOCKS := $(LOCK) $(LOCK:.lock=-dev.lock)
# Debian 13 has no Packer: the image is made on Debian 12.
PACKER := $(if $(filter 12%,$(file < /etc/debian_version)),packer)
# What the gateway needs to be built and run, and what its tests and its demo need beside that.
APT_PACKAGES := ca-certificates gcc make python3 python3-venv python3-dev nfs-ganesha \
    libntirpc-dev liburcu-dev libkrb5-dev libdbus-1-dev libcap-dev dpkg-dev \
    qemu-system-x86 busybox-static cpio kmod zstd systemd python3-apt \
    git procps postgresql nfs-ganesha-vfs e2fsprogs mount chromium fonts-dejavu-core \
    prometheus $(PACKER) nfs-common krb5-kdc krb5-admin-server krb5-user libnss-wrapper
# The gateways that a whole save is compared with, and the file system of durable names.
BENCH_PACKAGES := s3fs fuse3 e2fsprogs util-linux
PROFILE_PACKAGES := linux-perf e2fsprogs util-linux
APPLIANCE_PACKAGES := mmdebstrap e2fsprogs openssh-client
IMAGE_PACKAGES := qemu-utils nbdkit $(APPLIANCE_PACKAGES)
CEPH_PACKAGES := radosgw ceph-mon ceph-osd
POSIX_PACKAGES := autoconf automake
SLURM_PACKAGES := munge slurmctld slurmd slurm-client

# KEEP=1: gateway, pages and S3 server run until Ctrl-C.
demo: build
	$(PY) -m tests.demo $(if $(KEEP),--keep)

test: build lint
	@$(MAKE) -s test-suites

# Parts of the roles are played.
test-suites: $(ANSIBLE)/.installed
	@$(PY) -m tests.suites test

# On Debian 13 (Python 3.13, Ganesha 6.5, Linux 6.12 as the client), as root: the same tests, or those of
# SUITE=; the package; any target, as in: make debian13 DO="pynfs PYNFS=build/checkouts/pynfs".
DEBIAN13 = tests/support/debian13.sh $(BUILD)/debian13
test-debian13: DO = build && $(if $(SUITE),build/venv/bin/python -m pytest $(SUITE),make -s test-suites)
package-debian13: DO = package-test
debian13 test-debian13 package-debian13:
	@$(MAKE) -s deps APT_PACKAGES=mmdebstrap
	$(DEBIAN13) sh -c 'make -s $(DO)'

# The mount with the kernel of Debian 13 as the client, and this machine's server.
test-newer-client: SUITE = tests/t7_nfs
test-newer-client: build $(TRIXIE)/.built
	SPILLWAY_TEST_KERNEL=$(NEWER_KERNEL) $(PY) -m pytest $(SUITE)

# For every day, in less than four minutes: no drain, no kills, nothing that depends on time.
check: build lint
	@$(PY) -m tests.suites check

# The property test at length, on both engines, a reader of the journal that was away for a million
# changes, 10,000 renames over the control socket while clients look, the bad hour of the bucket, two minutes a
# server, the admin API asked at length by schemathesis, the rename of a directory of 100,000 drained files,
# fifty rounds of total loss on each engine, and an S3 server over a mount.
slow: build
	SPILLWAY_PROPERTY_STEPS=10000 $(PY) -m pytest -s tests/t3_namespace/test_model.py
	SPILLWAY_JOURNAL_ROWS=1000000 $(PY) -m pytest -s --timeout=1800 tests/t2_db/test_journal.py
	SPILLWAY_CONTROL_RENAMES=10000 $(PY) -m pytest -s --timeout=1800 tests/t6_fsal/test_control_socket.py tests/t7_nfs/test_control_socket.py
	SPILLWAY_FAULT_SECONDS=120 $(PY) -m pytest -s tests/t4_drain/test_faults.py
	SPILLWAY_CONTRACT_EXAMPLES=200 $(PY) -m pytest -s --timeout=7200 tests/t10_admin/test_contract.py
	SPILLWAY_CHECKPOINT_STEPS=100000 $(PY) -m pytest -s tests/t9_checkpoints/test_property.py -k sqlite
	SPILLWAY_TRASHED_FILES=1000000 $(PY) -m pytest -s --timeout=7200 tests/t9_checkpoints/test_trash_large.py
	SPILLWAY_FIRST_BOOT=1 $(PY) -m pytest -s tests/t11_package/test_documents.py -k first_boot
	SPILLWAY_RENAMED_FILES=100000 $(PY) -m pytest -s --timeout=7200 tests/t4_drain/test_rename.py -k "a_large_directory and rclone"
	SPILLWAY_IMPORTED_OBJECTS=1000000 $(PY) -m pytest -s --timeout=7200 tests/t12_recovery/test_import_large.py
	SPILLWAY_LOSS_ROUNDS=100 $(PY) -m pytest -s tests/t12_recovery/test_rounds.py
	@$(MAKE) -s deps APT_PACKAGES=curl
	SPILLWAY_S3_DOOR=1 $(PY) -m pytest -s tests/t7_nfs/test_s3_door.py

# The drain's suite on Ceph's object gateway, a third kind of server.
ceph: build
	@$(MAKE) -s deps APT_PACKAGES="$(CEPH_PACKAGES)"
	SPILLWAY_S3_SERVER=ceph $(PY) -m pytest tests/t4_drain

# Every page of the admin API, wide and narrow, light and dark, of a site as a week of training leaves it.
screenshots: build
	@$(MAKE) -s deps APT_PACKAGES=pngquant
	$(PY) -m tests.support.t10.screenshots docs/screenshots

# Saves by the real libraries, in a virtual environment of their own: killed at each system call that
# changes a file, and through the kernel's NFS client.
frameworks: build $(FRAMEWORKS)/.installed
	@$(MAKE) -s deps APT_PACKAGES=strace
	$(PY) -m pytest -s tests/frameworks

$(FRAMEWORKS)/.installed: tests/frameworks/requirements.txt | deps
	/usr/bin/python3 -m venv --clear $(FRAMEWORKS)
	DS_BUILD_OPS=0 $(FRAMEWORKS)/bin/pip install -q --disable-pip-version-check --no-cache-dir -r $<
	touch $@

# The files of examples/slurm with Debian's Slurm on loopback, whose daemons the test starts. As root.
slurm: build
	@$(MAKE) -s deps APT_PACKAGES="$(SLURM_PACKAGES)"
	$(PY) -m pytest -s tests/slurm

# Protocol and POSIX conformance, beside Ganesha's own FSAL_VFS on the same disk.
pynfs: build
	$(PY) -m tests.conformance.pynfs $(PYNFS) --server vfs
	$(PY) -m tests.conformance.pynfs $(PYNFS)

posix: build
	@$(MAKE) -s deps APT_PACKAGES="$(POSIX_PACKAGES)"
	$(PY) -m tests.conformance.posix $(PJDFSTEST) --server vfs
	$(PY) -m tests.conformance.posix $(PJDFSTEST)

# The namespace with a million files in many directories, and in one; what it costs when it is idle.
scale: build
	$(PY) -m tests.bench.scale $(BUILD)
	$(PY) -m tests.bench.idle $(BUILD)

# Side by side with Ganesha's FSAL_VFS, rclone and s3fs; bench renews docs/benchmarks.md. As root.
# A mount namespace: what is mounted for it goes with it, however it ends.
MOUNTING = unshare --mount $(PY) -m
BENCH = $(MOUNTING) tests.bench $(BUILD)

bench: build bench-deps $(NFS3SAVE)
	$(BENCH) --report

bench-quick: build bench-deps
	$(BENCH) --quick

# What an operation on names costs the server, by whose code it is spent in.
bench-profile: build
	@$(MAKE) -s deps APT_PACKAGES="$(PROFILE_PACKAGES)"
	$(MOUNTING) tests.bench.profile $(BUILD)

# 64 clients of nfsload for ten minutes, then for ten the processes of two clients, one of them with
# Debian 13's kernel, that contend for files. SOAK="--seconds 60" for less, SOAK="--parts sharing" for one.
soak: build $(TRIXIE)/.built
	$(PY) -m tests.bench.soak --kernel $(NEWER_KERNEL) $(SOAK) $(BUILD)

# kill -9 of everything at random moments under writers that log each answer. SEED= repeats a run.
torture: build
	$(PY) -m tests.torture --engine $(or $(ENGINE),sqlite) --seconds $(or $(SECONDS),3600) \
	    --kills $(or $(KILLS),200) --seed "$(SEED)" $(BUILD)

# A small disk is filled many times over while clients read what was evicted, with kills. TIMES=, SEED=.
# CLIENT=load: the load generator instead of the VM.
torture-cold: build
	$(PY) -m tests.torture.cold --times $(or $(TIMES),10) --client $(or $(CLIENT),vm) --seed "$(SEED)" $(BUILD)

# The drain beside rclone copy of the same files to the same server.
bench-drain: build
	$(BENCH) --groups drain

bench-cold: build
	$(BENCH) --groups cold

# The admin API of a gateway with a million files.
bench-admin: build
	$(BENCH) --groups admin

# tests/t0_tidy proves what the tools cannot: that imports and includes point one way and make no
# circle, how long files and functions are, and what the documents name.
lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/vulture
	$(PY) -m pytest -q tests/t0_tidy

# The packages by layers, with what they import. It fails if an import leads up.
graph: $(VENV)/.installed
	$(PY) -m tests.support.t0.importgraph

build: deps $(PLUGIN) $(NFSLOAD) $(BUILD)/vm/.built

# The Debian package, in build/package. package-test builds it a second time and compares the bytes.
package: $(PLUGIN) $(VENV)/.installed
	rm -rf $(BUILD)/package
	$(PY) -m package.build $(PLUGIN) $(BUILD)/package

# The client of the admin API, as a wheel and a Debian package, in build/client.
client: $(VENV)/.installed
	rm -rf $(BUILD)/client
	$(PY) -m package.client $(BUILD)/client

# The client in an environment of its own gives every order that can be given from another machine.
client-test: build client
	$(PY) -m venv --without-pip $(BUILD)/client/venv
	$(PY) -m pip -q --disable-pip-version-check --python $(BUILD)/client/venv/bin/python install \
	    -c $(VENV)/constraints.txt $(BUILD)/client/*.whl
	SPILLWAY_TEST_CLIENT=$(BUILD)/client/venv/bin/spillway $(PY) -m pytest \
	    tests/t11_package/test_client.py $(wildcard tests/t10_admin/test_remote*.py)

package-test: package
	$(PY) -m tests.package $(GANESHA) $(BUILD)/package

# A bare machine becomes a gateway by the roles, is used, upgraded, rolled back and cleared. As root.
# STEPS= names some of the steps.
appliance-test: build ansible-lint
	@$(MAKE) -s deps APT_PACKAGES="$(APPLIANCE_PACKAGES)"
	$(PY) -m tests.appliance $(BUILD)/appliance $(PLUGIN) $(GANESHA) $(ANSIBLE) --steps $(STEPS)

# The disk image of a gateway, in build/image: Packer runs the same roles on a Debian made here. As root.
image: build package $(ANSIBLE)/.installed
	@$(MAKE) -s deps APT_PACKAGES="$(IMAGE_PACKAGES)"
	$(PY) -m package.image $(BUILD)/appliance $(BUILD)/package/*.deb $(ANSIBLE)/bin $(BUILD)/image

# The image is booted, configured, mounted by a client, and asked what it has. As root, after make image.
image-test: build
	$(PY) -m tests.appliance.first $(BUILD)/image $(BUILD)/vm

# The image loses its power at random moments. As root, after make image. CYCLES=, SEED= repeats a run.
# POWERCUT=--without-fsync: the NFS server's calls of fsync do nothing, and the loss must be found.
powercut: build $(NFSLOAD)
	$(PY) -m tests.appliance.powercut --cycles $(or $(CYCLES),20) --seed "$(SEED)" $(POWERCUT) \
	    $(BUILD)/image $(BUILD)/vm

ansible-lint: $(ANSIBLE)/.installed | deps
	cd ansible && PATH="$(abspath $(ANSIBLE))/bin:$$PATH" ansible-lint

$(ANSIBLE)/.installed: ansible/requirements.txt | deps
	/usr/bin/python3 -m venv --clear $(ANSIBLE)
	$(ANSIBLE)/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

# Takes the newest versions that pyproject.toml allows, for the package, the tests and CI alike.
lock: deps
	/usr/bin/python3 -m venv $(BUILD)/lock
	$(BUILD)/lock/bin/python -m package.lock

# The licences of the wheels in the package, for docs/licences.md, and their known vulnerabilities, for
# which pip-audit asks pypi.org. A wheel of which pypi.org tells nothing is a failure.
LICENCES := MIT;BSD;Apache;PSF;MPL-2.0;Mozilla Public License 2.0;LGPL-3.0
audit: $(AUDIT)/.installed
	@$(AUDIT)/bin/pip-licenses --python $(AUDIT)/wheels/bin/python --order license --format markdown \
	    --partial-match --allow-only "$(LICENCES)" > $(AUDIT)/licences.md
	@{ echo "# Licences of the wheels in the package"; echo; echo "Made by \`make audit\` from $(LOCK)."; \
	    echo; cat $(AUDIT)/licences.md; } > docs/licences.md
	@$(AUDIT)/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r $(LOCK) || { \
	    echo "audit: the licences are right. Of vulnerabilities, read the line above: one is known, or" \
	        "pypi.org told nothing of a wheel, and then nothing is known." >&2; exit 1; }

$(AUDIT)/.installed: package/audit.txt $(LOCK) | deps
	/usr/bin/python3 -m venv --clear $(AUDIT)
	$(AUDIT)/bin/pip install -q --disable-pip-version-check -r $<
	/usr/bin/python3 -m venv --without-pip $(AUDIT)/wheels
	$(AUDIT)/bin/pip --python $(AUDIT)/wheels/bin/python install -q --disable-pip-version-check \
	    --no-deps --require-hashes -r $(LOCK)
	touch $@

# dpkg-query also knows packages that others only suggest: their status is not-installed.
deps:
	@found=$$(dpkg-query -W -f '$${db:Status-Status}\n' $(APT_PACKAGES) 2>/dev/null) && \
	    ! echo "$$found" | grep -qvx installed || { \
	    sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	    $$sudo apt-get update -q && \
	    $$sudo env DEBIAN_FRONTEND=noninteractive \
	        apt-get install -y -q --no-install-recommends $(APT_PACKAGES); \
	}

bench-deps:
	@$(MAKE) -s deps APT_PACKAGES="$(BENCH_PACKAGES)"

# What is tested is what ships: the versions are those of the package's lock.
$(VENV)/.installed: pyproject.toml $(LOCKS) | deps
	/usr/bin/python3 -m venv $(VENV)
	cut -d ' ' -f 1 $(LOCKS) | grep -v '^#' > $(VENV)/constraints.txt
	$(VENV)/bin/pip install -q --disable-pip-version-check -c $(VENV)/constraints.txt \
	    -e '.[admin,postgres,dev]'
	touch $@

$(GANESHA)/.version: fsal/native/ganesha-headers.sh | deps
	fsal/native/ganesha-headers.sh $(GANESHA)
	touch $@

$(PLUGIN): $(wildcard fsal/native/*.[ch]) fsal/native/Makefile $(GANESHA)/.version | deps
	$(MAKE) -s -C fsal/native OUT=$(abspath $(BUILD)/lib) GANESHA=$(abspath $(GANESHA))

# The client that loads an NFS server in the measurements.
COMPILE_TOOL = gcc -std=gnu11 -O2 -g -Wall -Wextra -Werror -o $@ $(filter %.c,$^) -lpthread

$(NFSLOAD): $(wildcard tests/bench/nfsload/*.[ch]) | deps
	@mkdir -p $(@D)
	$(COMPILE_TOOL)

# A checkpoint over NFSv3: rclone serves no other.
$(NFS3SAVE): tests/bench/nfs3save.c $(addprefix tests/bench/nfsload/,rpc.c stats.c rpc.h stats.h wire.h) | deps
	@mkdir -p $(@D)
	$(COMPILE_TOOL)

$(BUILD)/vm/.built: tests/support/vm/build.py $(VENV)/.installed
	$(PY) -m tests.support.vm.build $(BUILD)/vm
	touch $@

# The kernel of Debian 13, which apt fetches with a configuration of its own.
$(TRIXIE)/.built: tests/support/vm/trixie.sh tests/support/vm/build.py $(VENV)/.installed
	tests/support/vm/trixie.sh $(TRIXIE)
	APT_CONFIG=$(abspath $(TRIXIE))/apt.conf $(PY) -m tests.support.vm.build $(TRIXIE)/vm
	touch $@

clean:
	rm -rf $(BUILD)
