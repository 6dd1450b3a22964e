// Live forms, the live list, judging by keyboard. Every page works without it.
const part = { headers: { "x-part": "1" } };

const turns = new WeakMap();

async function put(url, target, options = part) {
  const turn = {};
  turns.set(target, turn);
  try {
    const answer = await fetch(url, options), html = await answer.text();
    if (turns.get(target) === turn) target.innerHTML = html; // escaped where it was made
    return answer.ok;
  } catch {
    target.textContent = "The server does not answer; is it still running?";
    return false;
  }
}

function addressed(form, url = form.action) {
  const given = new URLSearchParams(new FormData(form));
  for (const [name, value] of [...given]) if (value === "") given.delete(name);
  return `${url}?${given}`;
}

// The value of a slider; one for a day counts days from a day.
function told(slider) {
  if (!slider.dataset.from) return slider.value;
  const day = new Date(Date.parse(slider.dataset.from) + slider.value * 864e5).toISOString().slice(0, 10);
  slider.setAttribute("aria-valuetext", day);
  return day;
}

// Sliders and filters: what they bring is replaced while they move; only the last answer counts.
for (const form of document.querySelectorAll("form[data-live]")) {
  const target = document.querySelector(form.dataset.live);
  const isList = form.dataset.live === "#rows";
  let timer, poll;
  const ask = () => put(addressed(form) + (isList ? "&part=rows" : ""), target);
  const soon = () => { clearTimeout(timer); timer = setTimeout(ask, 150); };
  form.addEventListener("input", (event) => {
    event.target.closest("label")?.querySelector("output")?.replaceChildren(told(event.target));
    soon();
    if (event.target.name === "live") follow();
  });
  form.addEventListener("submit", async (event) => {
    if (isList) return; // the address then says the filters
    event.preventDefault();
    const to = event.submitter?.getAttribute("formaction");
    if (!to) return ask();
    await put(to, target, { ...part, method: "POST", body: new URLSearchParams(new FormData(form)) });
  });
  const follow = () => {
    clearInterval(poll);
    if (form.elements.live?.checked) poll = setInterval(() => document.hidden || ask(), 2000);
  };
  follow();
}

// Judging: the buttons, and the keys that press them.
for (const form of document.querySelectorAll("form.ratings"))
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form, event.submitter));
    await put(form.action, form.querySelector(".judged"), { ...part, method: "POST", body });
  });

const results = [...document.querySelectorAll(".results > li")];
let chosen = -1;

function choose(at) {
  results[chosen]?.classList.remove("chosen");
  chosen = Math.max(0, Math.min(results.length - 1, at));
  results[chosen].closest("details")?.setAttribute("open", "");
  results[chosen].classList.add("chosen");
  results[chosen].focus();
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input:not([type=range], [type=checkbox]), select, textarea");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    document.querySelector("input[type=search], input[name=note]")?.focus();
    event.preventDefault();
  } else if (results.length && event.key === "j") choose(chosen + 1);
  else if (results.length && event.key === "k") choose(chosen - 1);
  else results[chosen]?.querySelector(`[data-key="${event.key}"]`)?.click();
});
