"""NFS server whose reserved inodes are changed over the control socket."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

from gateway.common.types import GATEWAY_CRED, Attr, SetAttr
from gateway.rpc.control import ControlSocket
from gateway.rpc.frames import Op, RpcRequest
from tests.support import nfs4
from tests.support.nfsserver import Server


class Site(NamedTuple):
    server: Server
    control: ControlSocket
    client: nfs4.Client

    def ask(self, asked: Op, ino: int, name: bytes = b"", **more: Any) -> Attr | None:
        request = RpcRequest(asked, ino, name, cred=GATEWAY_CRED)._replace(**more)
        [answer] = self.control.run([request])
        assert answer.errno == 0, errno.errorcode[answer.errno]
        return answer.attr

    def install(self, parent: int, name: bytes, data: bytes) -> Attr:
        directory = self.server.settings.files_dir / "incoming"
        directory.mkdir(exist_ok=True)
        (directory / "made").write_bytes(data)
        attr = self.ask(Op.INSTALL, parent, name, name2=b"made", wanted=SetAttr(mode=0o444))
        assert attr is not None
        return attr

    def inside(self, *names: str) -> bytes:
        return self.client.handle("export", ".spillway", *names)
