"""Client of the admin API for commands: requests, jobs, and the stream of events.

No error has the token: neither the text of a request nor its headers are ever shown. A job
continues at the gateway whatever becomes of the command that began it. The stream of events is
taken up again after a break.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, Generic, Self, TypeVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

import httpx

from gateway.cli.target import MAKE, Reach
from gateway.common import clock, network
from gateway.common.errors import NotPossible, NotThere, UserError
from gateway.common.models import Model, from_json
from gateway.common.network import is_loopback
from gateway.common.text import shown
from gateway.service.jobs import Job, Progress, Tell
from gateway.service.records import KINDS, Event

PREFIX = "/api/v1"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 120.0
"""A plan of many checkpoints, or a bucket that does not answer, takes long."""
SILENT_SECONDS = 60.0
"""A stream without events has a comment every few seconds."""
PAGE = 1000
UNKNOWN_ROUTE = "unknown_route"
"""The code of a 404 for an address that the API does not have (admin_api.problems)."""
OTHER_VERSION = "use the same version of Spillway on both machines"


M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class ApiCall(Generic[M]):
    """A call of the admin API. A test compares each with the OpenAPI document.

    Args:
        path: below ``PREFIX``, with names of parameters in braces.
        model: of the answer, or of the items of a list. None: what it answers is not read.
    """

    method: str
    path: str
    model: type[M] | None = None


class Unreachable(UserError):
    """The gateway did not answer. It may soon."""


class Api:
    """The admin API of one gateway. A context manager.

    Its methods raise NotThere, NotPossible, Unreachable, UserError."""

    def __init__(self, reach: Reach) -> None:
        self.url = reach.url
        self._http = httpx.Client(
            base_url=reach.url + PREFIX,
            headers={
                "Authorization": f"Bearer {reach.token}",
                "User-Agent": f"spillway/{version('spillway')}",
            },
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            verify=_trust(reach),
            # Else HTTP_PROXY would get the token of a call that never leaves this machine.
            trust_env=not is_loopback(urlsplit(reach.url).hostname or ""),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, address: str, /, **query: Any) -> Any:
        """Return what a call that reads answers."""
        return self.call("GET", address, query=query).json()

    def every(
        self, address: str, /, most: int | None = None, **query: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a list, page by page.

        Args:
            most: rows.
        """
        cursor, left = None, most
        while left is None or left > 0:
            limit = PAGE if left is None else min(PAGE, left)
            page = self.get(address, limit=limit, cursor=cursor, **query)
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            cursor = page["next"]
            if cursor is None:
                return

    def ask(
        self,
        call: ApiCall[M],
        *parts: object,
        body: Any = None,
        if_version: int | str | None = None,
        **query: Any,
    ) -> M:
        """Return what a call answers.

        Args:
            parts: the parameters of the path, in their order.
            body: JSON.
            if_version: that what is changed must have. None: a call that asks for none.
            query: parameters; one that is None is left out.
        """
        assert call.model is not None
        path, headers = _filled(call.path, parts), _if_match(if_version)
        answer = self.call(call.method, path, body, query=query, headers=headers)
        return self._read(call.model, answer.json())

    def tell(
        self,
        call: ApiCall[Any],
        *parts: object,
        body: Any = None,
        if_version: int | str | None = None,
        **query: Any,
    ) -> None:
        """Make a call whose answer is not read. Args: as of ``ask``."""
        path, headers = _filled(call.path, parts), _if_match(if_version)
        self.call(call.method, path, body, query=query, headers=headers)

    def list(self, call: ApiCall[M], *parts: object, **query: Any) -> list[M]:
        """Return the items of a list that comes as a whole. Args: as of ``ask``."""
        assert call.model is not None
        answer = self.call(call.method, _filled(call.path, parts), query=query)
        return [self._read(call.model, item) for item in answer.json()]

    def rows(
        self, call: ApiCall[M], *parts: object, most: int | None = None, **query: Any
    ) -> Iterator[M]:
        """Yield the items of a list that comes page by page. Args: as of ``ask``; most, items."""
        assert call.model is not None
        for item in self.every(_filled(call.path, parts), most, **query):
            yield self._read(call.model, item)

    def _read(self, model: type[M], document: Any) -> M:
        try:
            return from_json(model, document)
        except KeyError as exc:
            raise self.strange(f"its answer has no {exc}") from None

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Make a call. Returns its answer, which is a success."""
        more = {} if method == "GET" else {"Idempotency-Key": str(uuid4())}
        params = {name: value for name, value in (query or {}).items() if value is not None}
        try:
            answer = self._http.request(
                method, path, json=body, params=params, headers={**more, **(headers or {})}
            )
        except httpx.TimeoutException:
            raise Unreachable(f"{self.url} does not answer in time: try again") from None
        except httpx.TransportError as exc:
            raise self._unreachable(exc) from None
        is_ours = answer.headers.get("Content-Type", "").startswith("application/json")
        if answer.status_code == 204 or (answer.is_success and is_ours):
            return answer
        raise self._refused(answer)

    def lines(self, address: str, headers: Mapping[str, str]) -> Generator[str]:
        """Yield the lines of an answer that does not end by itself, as they come."""
        timeout = httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)
        try:
            with self._http.stream("GET", address, headers=headers, timeout=timeout) as answer:
                kind = answer.headers.get("Content-Type", "")
                if not (answer.is_success and kind.startswith("text/event-stream")):
                    answer.read()
                    raise self._refused(answer)
                yield from answer.iter_lines()
        except httpx.TimeoutException:
            raise Unreachable(f"{self.url} does not answer in time: try again") from None
        except httpx.TransportError as exc:
            raise self._unreachable(exc) from None

    @cached_property
    def export(self) -> str:
        """The path that clients mount."""
        export: str = self.get("/configuration")["sections"]["nfs"]["export"]["value"]
        return export

    def strange(self, what: str) -> UserError:
        """Return the error of a gateway that answers in another form."""
        return UserError(f"{self.url}: {what}{self._versions()}: {OTHER_VERSION}")

    def _unreachable(self, exc: httpx.TransportError) -> UserError:
        cause = network.error_behind(exc)
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = network.why_untrusted(cause)
            remedy = "use the name or address that it is for"
            if "ostname" not in why and "IP address" not in why:
                remedy = "copy admin.certificate of the gateway here, and name it: --ca FILE"
            return UserError(f"the certificate of {self.url} is not trusted: {why}: {remedy}")
        if cause is not None:
            return UserError(
                f"{self.url} does not speak TLS as it should ({shown(str(exc))}): look at the "
                "port, and at admin.tls of the gateway"
            )
        return Unreachable(
            f"cannot reach {self.url}: {shown(str(exc)) or type(exc).__name__}: is the address "
            "right, does the gateway run, and does admin.bind let other machines in?"
        )

    def _refused(self, answer: httpx.Response) -> Exception:
        """Return the error that says why a call was refused."""
        try:
            problem = answer.json()
            detail = shown(str(problem["detail"]))
        except (ValueError, KeyError, TypeError):
            return UserError(
                f"{self.url} answers {answer.status_code}, and not as the admin API of Spillway: "
                "check the address, and any proxy before it"
            )
        match answer.status_code:
            case 401:
                return UserError(f"{self.url} does not take the token: {detail}: {MAKE}")
            case 404 if problem.get("code") == UNKNOWN_ROUTE:
                return self.strange("it cannot do this")
            case 404:
                return NotThere(detail)
            case 409 | 507:
                return NotPossible(detail)
            case 412:
                return NotPossible("it was changed meanwhile: look at it as it is now, and repeat")
            case 422:
                return UserError(f"{detail}{self._versions()}")
            case 429:
                seconds = answer.headers.get("Retry-After", "some")
                return UserError(f"{self.url}: {detail}: try again in {shown(seconds)} s")
            case 503:
                return Unreachable(f"{self.url}: {detail}")
            case status if status >= 500:
                place = f" (request {shown(str(problem.get('instance')))})"
                return UserError(f"{self.url}: {detail}{place}")
            case _:
                return UserError(f"{self.url}: {detail}")

    def _versions(self) -> str:
        """Return the versions of both sides if they are known and differ."""
        local_version = version("spillway").partition("+")[0]  # 0.2.0+client is 0.2.0
        try:
            there = shown(str(self._http.get("/openapi.json").json()["info"]["version"]))
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return ""
        return (
            "" if there == local_version else f" (it is Spillway {there}, this is {local_version})"
        )


def _if_match(version: int | str | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}


def _filled(path: str, parts: tuple[object, ...]) -> str:
    """Return the path of a call with its parameters."""
    names = iter(parts)
    words = (quote(str(next(names)), safe="") if "{" in word else word for word in path.split("/"))
    return "/".join(words)


def _trust(reach: Reach) -> ssl.SSLContext | bool:
    if reach.url.startswith("http:"):
        return False  # there is no TLS, and to load all certificates of the system takes long
    if reach.ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(reach.ca))
    except ssl.SSLError:
        raise UserError(f"{reach.ca} has no certificate in PEM form: copy it again") from None


POLL_SECONDS = 0.2
POLL_SECONDS_MAX = 2.0
QUIET_SECONDS = 1.0
"""Nothing is told of a job that ends within this time."""
ABSENT_SECONDS = 60.0
"""The time that the admin API may be away: the gateway restarts it, and its jobs begin again."""

IN_BYTES = ("warm", "wait")
"""The kinds of jobs whose progress is counted in bytes."""

JOB = ApiCall("GET", "/jobs/{id}", Job)
CANCEL_JOB = ApiCall("POST", "/jobs/{id}/cancel", Job)


class JobTimeout(NotPossible):
    """The time is over, and the job was cancelled. The message says how far it was."""


def follow_job(
    api: Api, job: Job, progress: Tell, *, timeout_seconds: float | None = None
) -> dict[str, Any]:
    """Wait for the end of a job.

    Args:
        job: as the call that began it answered.
        progress: told now and then how far it is.
        timeout_seconds: after which the job is cancelled.

    Returns:
        Its result.

    Raises:
        Late: the time is over.
        NotPossible: it failed, or another person cancelled it.
        UserError: it failed, or the gateway stays away.
        KeyboardInterrupt: with a message that says how to end the job.
    """
    pause = POLL_SECONDS
    seen = began = clock.monotonic_seconds()
    try:
        while job.ended_ns is None:
            now = clock.monotonic_seconds()
            if timeout_seconds is not None and now - began >= timeout_seconds:
                _cancel(api, job)
            if (job.text or job.total) and now - began >= QUIET_SECONDS:
                progress(Progress(job.done, job.total, job.text, job.kind in IN_BYTES))
            time.sleep(pause)
            pause = min(POLL_SECONDS_MAX, 1.5 * pause)
            try:
                job = api.ask(JOB, job.id)
                seen = clock.monotonic_seconds()
            except Unreachable:
                if clock.monotonic_seconds() - seen > ABSENT_SECONDS:
                    raise
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the gateway continues with it; to end it: spillway job cancel {job.id}"
        ) from None
    return _result(job)


def outcome(api: Api, model: type[M], job: Job, progress: Tell) -> M:
    """Wait for the end of a job, whose result is a model. Args and errors: as of ``follow``."""
    try:
        return from_json(model, follow_job(api, job, progress))
    except KeyError as exc:
        raise api.strange(f"its answer has no {exc}") from None


def _cancel(api: Api, job: Job) -> None:
    """End a job that is late. Raises Late, unless it has ended in this moment."""
    try:
        api.tell(CANCEL_JOB, job.id)
    except NotPossible:
        return
    raise JobTimeout(shown(job.text) or "it was not looked at yet")


def _result(job: Job) -> dict[str, Any]:
    if job.state == "done":
        return job.result or {}
    if job.state == "failed":
        problem = job.problem or {}
        detail = shown(str(problem.get("detail")))
        if problem.get("status") in (404, 409, 507):
            raise NotPossible(detail)
        raise UserError(detail)
    raise NotPossible(f"the job {job.id} is {job.state}: {shown(job.text)}")


AGAIN_SECONDS = 2.0
"""The time that the admin API may be away: the gateway restarts it."""


def follow_events(api: Api) -> Generator[Event]:
    """Yield events, without an end. Raises UserError."""
    last_id: str | None = None
    has_answered, away_since = False, None
    while True:
        try:
            with closing(_events(api, last_id)) as events:
                for event in events:
                    has_answered, away_since = True, None
                    last_id = event.id or last_id
                    yield event
        except Unreachable:
            now = clock.monotonic_seconds()
            away_since = away_since or now
            # Without an answer at first, the address may be wrong.
            if not has_answered or now - away_since > ABSENT_SECONDS:
                raise
        time.sleep(AGAIN_SECONDS)


def _events(api: Api, last_id: str | None) -> Generator[Event]:
    """Yield the events of one connection. Args: last_id, of the last event that was read."""
    kind, id = "", None
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    with closing(api.lines("/events", headers)) as lines:
        for line in lines:
            name, _colon, value = line.partition(": ")
            if name == "id":
                id = value
            elif name == "event":
                kind = value
            elif name == "data" and kind in KINDS:
                try:
                    yield Event(kind, id, json.loads(value))
                except ValueError:
                    raise api.strange("its events are no JSON") from None
            elif not line:
                kind, id = "", None
