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

// A region that says data-live asks for itself again when the gateway says that something changed.
const live = document.querySelector("[data-events]");
if (live) {
  const events = new EventSource(live.dataset.events);
  const say = (state, text) => { live.dataset.state = state; live.textContent = text; };
  events.addEventListener("open", () => say("live", "Live"));
  events.addEventListener("error", () => say("lost", "Connection lost: trying again"));
  for (const name of live.dataset.topics.split(" ")) {
    events.addEventListener(name, (event) => {
      say("live", "Live");
      htmx.trigger(document.body, `live-${name}`, { data: JSON.parse(event.data) });
    });
  }
  addEventListener("pagehide", () => events.close());
}
