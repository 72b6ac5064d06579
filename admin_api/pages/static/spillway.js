// What makes the pages quicker to use. Every order works without it.
"use strict";

document.documentElement.classList.add("scripted");

// A question (what would be deleted?) has a page of its own. Here it opens over the page instead.
const dialog = document.getElementById("dialog");

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-dialog]");
  const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey;
  if (link && dialog && plain) {
    event.preventDefault();
    try {
      const answer = await fetch(link.href);
      const found = new DOMParser().parseFromString(await answer.text(), "text/html");
      const question = found.querySelector(".question");
      if (!question) throw new Error("the answer has no question");
      dialog.replaceChildren(question);
      htmx.process(dialog);
      dialog.showModal();
    } catch {
      location.href = link.href; // logged out, or an error: its page says so
    }
    return;
  }
  if (event.target === dialog || (dialog?.open && event.target.closest("a[data-close]"))) {
    event.preventDefault();
    dialog.close();
  }
});

// Regions with hx-trigger="live-..." ask for themselves again when the gateway says that something
// changed. While there is no connection for that, they ask every few seconds.
const live = document.querySelector("[data-events]");
if (live) {
  const topics = live.dataset.topics.split(" ");
  let events = null;
  let polling = 0;
  const say = (state, text) => { live.dataset.state = state; live.textContent = text; };
  const tell = (topic) => htmx.trigger(document.body, `live-${topic}`);
  const rest = () => { clearInterval(polling); polling = 0; };
  const listen = () => {
    events = new EventSource(live.dataset.events);
    events.addEventListener("open", () => { say("live", "Live"); rest(); });
    events.addEventListener("error", () => {
      say("lost", "Not live: every 5 seconds");
      polling ||= setInterval(() => topics.forEach(tell), 5000);
    });
    for (const topic of topics) events.addEventListener(topic, () => tell(topic));
  };
  const stop = () => { events?.close(); events = null; rest(); };
  // A browser has six connections to a gateway. Hidden tabs would keep all of them.
  const look = () => {
    stop();
    if (document.visibilityState === "visible") listen();
    else say("paused", "Paused");
  };
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", stop);
  look();
}

// A region must not become the form of the login: then the whole page is loaded, and leads there.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (new URL(event.detail.xhr.responseURL).pathname !== "/login") return;
  event.detail.shouldSwap = false;
  location.reload();
});
