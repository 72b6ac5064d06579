"""Sending of webhooks: a POST for each event, signed as Standard Webhooks says, tried until it is
taken.

Each receiver has a thread, which sends its events one by one: a receiver that is slow or away holds
up no other one, and gets its events in their order. Redirects are not followed: the address that a
person wrote is the only one that gets anything.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import httpx

from admin_api.webhook_events import EventFinder, WebhookEvent, document
from admin_api.webhook_queue import QueuedEvent, QueueStanding, WebhookQueue
from gateway.common import clock
from gateway.common.errors import SpillwayError, UserError
from gateway.config.settings import Settings
from gateway.db.engine import Database
from gateway.service.status import Status

log = logging.getLogger("admin.webhooks")

TEST = "webhook.test"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
FIRST_PAUSE_SECONDS = 2.0
PAUSE_MAX_SECONDS = 600.0
GONE_SECONDS = 86_400.0
"""A receiver that said 410 wants nothing more. It is asked once a day, and after a restart."""
GONE = 410
LOOK_SECONDS = 5.0
PAUSE_RATIO = 99
"""The pause after a look takes this many times as long as the look."""
ALARM_SECONDS = 30.0
FIRST_ALARM_SECONDS = 60.0
"""So long after a start the other processes may be starting too."""
RETRY_SECONDS = 10.0
SECRET_MIN = 24
_PREFIX = "whsec_"


class WebhookReceiver(NamedTuple):
    """A receiver, as the configuration has it."""

    name: str
    url: str
    secret_file: Path

    @staticmethod
    def of(table: Mapping[str, Any]) -> WebhookReceiver:
        """Return the receiver of a table of ``webhooks.receiver``."""
        return WebhookReceiver(table["name"], table["url"], Path(table["secret_file"]))

    def key(self) -> bytes:
        """Return the key of its signatures. The file is read for each: a new secret needs no
        restart. Raises UserError."""
        path = self.secret_file
        try:
            mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "it is no text"
            raise UserError(
                f"cannot read {path}: {reason}: put the secret of {self.name} there, readable for "
                "the user of the gateway"
            ) from None
        if mode & 0o007:
            raise UserError(f"others can read the secret in {path}: chmod o= {path}")
        try:
            key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        except ValueError:
            key = b""
        if len(key) < SECRET_MIN:
            raise UserError(
                f"{path} has no secret of at least {SECRET_MIN} bytes in base64: "
                f"(printf {_PREFIX}; openssl rand -base64 32) > {path}"
            )
        return key


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a message (Standard Webhooks, symmetric)."""
    digest = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


class Delivery(NamedTuple):
    """How a try ended."""

    error: str = ""
    """Why the receiver does not have it, for people. Empty: it has it."""
    is_gone: bool = False
    """Whether it wants nothing more."""
    retry_seconds: float = 0.0
    """After so long it wants to be asked again."""


class Post(Protocol):
    """Sends one message."""

    def __call__(self, receiver: WebhookReceiver, id: str, body: bytes) -> Delivery:
        """Send it once. Raises no error of the receiver or the network."""


class HttpPost:
    """Sends messages over HTTP, and keeps the connection. Not safe to use from several threads."""

    def __init__(self) -> None:
        self._client: httpx.Client | None = None

    def __call__(self, receiver: WebhookReceiver, id: str, body: bytes) -> Delivery:
        """Send a message once. What goes wrong is in the result."""
        try:
            key = receiver.key()
        except UserError as exc:
            return Delivery(str(exc))
        timestamp = clock.now_ns() // clock.NS
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"spillway/{version('spillway')}",
            "webhook-id": id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(key, id, timestamp, body),
        }
        if self._client is None:
            timeout = httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS)
            self._client = httpx.Client(timeout=timeout, follow_redirects=False)
        try:
            # The body of the answer is not read: it may have no end.
            with self._client.stream("POST", receiver.url, content=body, headers=headers) as answer:
                return _judged(answer)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as exc:
            self.close()
            return Delivery(f"{type(exc).__name__}: {exc}")

    def close(self) -> None:
        """Close the connection. The next message opens another one."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _judged(answer: httpx.Response) -> Delivery:
    if answer.is_success:
        return Delivery()
    status = answer.status_code
    if status == GONE:
        return Delivery("it answers 410: it wants nothing more", is_gone=True)
    if answer.is_redirect:
        return Delivery(f"it answers {status}: write the URL to which it redirects")
    after = answer.headers.get("Retry-After", "")
    seconds = float(after) if after.isascii() and after.isdigit() else 0.0
    return Delivery(f"it answers {status}", retry_seconds=min(seconds, 6 * PAUSE_MAX_SECONDS))


def send_test(gateway: str, receiver: WebhookReceiver) -> Delivery:
    """Send an event that says only that it is a test. The queue is not used.

    Args:
        gateway: its name.
        receiver: that gets it.
    """
    id, body = document(WebhookEvent(TEST, receiver.name, {}), gateway, "")
    with closing(HttpPost()) as post:
        return post(receiver, id, body)


class WebhookSender:
    """Sends the events of one receiver. Not safe to use from several threads.

    Args:
        receiver: that gets them.
        queue: that has them.
        post: sends one.
    """

    def __init__(self, receiver: WebhookReceiver, queue: WebhookQueue, post: Post) -> None:
        self.receiver = receiver
        self._queue = queue
        self._post = post
        self._tries = 0
        self.last = Delivery()
        """How the last try ended."""

    def step(self) -> float | None:
        """Send the event that is next. Returns after how many seconds the next may be sent, or None
        if none waits. Raises sqlite3.Error."""
        event = self._queue.first(self.receiver.name)
        if event is None:
            return None
        return self._sent(event)

    def _sent(self, event: QueuedEvent) -> float:
        before, self.last = self.last, self._post(self.receiver, event.id, event.body)
        if not self.last.error:
            self._queue.done(event)
            self._tries = 0
            return 0.0
        if self.last.error != before.error:
            log.warning("%s does not take events: %s", self.receiver.name, self.last.error)
        self._tries += 1
        if self.last.is_gone:
            return GONE_SECONDS
        most = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._tries - 1, 30), PAUSE_MAX_SECONDS)
        return max(random.uniform(0.5 * most, most), self.last.retry_seconds)


class Webhooks:
    """The threads that find events and send them.

    Args:
        queue: the queue.
        senders: one for each receiver.
        look: finds what became of checkpoints.
        look_at_alarms: finds which alarms began and ended.
        stop: ends them.
    """

    def __init__(
        self,
        queue: WebhookQueue,
        senders: list[WebhookSender],
        look: Callable[[], int],
        look_at_alarms: Callable[[], int],
        stop: threading.Event,
    ) -> None:
        self._queue = queue
        self._senders = {sender.receiver.name: sender for sender in senders}
        self._look, self._look_at_alarms = look, look_at_alarms
        self._stop = stop
        self._news = {name: threading.Event() for name in self._senders}

    def start(self) -> None:
        """Start the threads. They end with the process."""
        for name, sender in self._senders.items():
            news = self._news[name]
            threading.Thread(target=self._send, args=(sender, news), daemon=True).start()
        threading.Thread(target=self._find, daemon=True).start()

    def report(self) -> dict[str, Any]:
        """Return how far each receiver is, for the report of this process."""
        found = {}
        for name, sender in self._senders.items():
            last = sender.last
            try:
                standing = self._queue.standing(name)
            except sqlite3.Error as exc:
                standing, last = QueueStanding(), Delivery(str(exc))
            found[name] = {**standing._asdict(), "error": last.error, "is_gone": last.is_gone}
        return found

    def _send(self, sender: WebhookSender, news: threading.Event) -> None:
        while not self._stop.is_set():
            news.clear()
            seconds: float | None = RETRY_SECONDS
            with _kept_running(f"events for {sender.receiver.name} are not sent now"):
                seconds = sender.step()
            if seconds is None:
                news.wait(LOOK_SECONDS)
            else:
                self._stop.wait(seconds)

    def _find(self) -> None:
        alarms_at = clock.monotonic_seconds() + FIRST_ALARM_SECONDS
        while not self._stop.is_set():
            began = clock.monotonic_seconds()
            seconds = RETRY_SECONDS
            with _kept_running("events are found later"):
                found = self._look()
                if began >= alarms_at:
                    found += self._look_at_alarms()
                    alarms_at = clock.monotonic_seconds() + ALARM_SECONDS
                if found:
                    for news in self._news.values():
                        news.set()
                seconds = max(LOOK_SECONDS, PAUSE_RATIO * (clock.monotonic_seconds() - began))
            self._stop.wait(min(seconds, 600.0))


@contextmanager
def _kept_running(what: str) -> Iterator[None]:
    """Log what goes wrong: the next try may succeed."""
    try:
        yield
    except (SpillwayError, sqlite3.Error, OSError) as exc:
        log.warning("%s: %s", what, exc)
    except Exception:
        log.exception("unexpected")


def webhooks_of(
    settings: Settings, database: Database, status: Callable[[], Status], stop: threading.Event
) -> Webhooks:
    """Return the webhooks of a gateway.

    Args:
        settings: of the gateway.
        database: of the namespace.
        status: returns the state of the gateway, for its alarms.
        stop: ends them.

    Raises:
        UserError: the queue cannot be used.
        sqlite3.Error: the same, once it is open.
    """
    queue = WebhookQueue(settings.webhooks_db)
    receivers = [WebhookReceiver.of(table) for table in settings.webhooks.receiver]
    queue.keep_only([receiver.name for receiver in receivers])
    finder = EventFinder(settings, database, queue, status)
    senders = [WebhookSender(receiver, queue, HttpPost()) for receiver in receivers]
    return Webhooks(queue, senders, finder.look, finder.look_at_alarms, stop)
