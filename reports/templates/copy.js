// Copying, printing, short notices; at start, go to the target of the address.

let noticeTimer = 0;

function notify(text) {
  byId("toast").textContent = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { byId("toast").textContent = ""; }, 4000);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not a secure context, or no permission
    const area = element("textarea", "hidden");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) return notify("The browser blocks copying on this page.");
  }
  return notify("Copied.");
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.copy !== undefined) copyText(button.dataset.copy);
  else if (button.dataset.link) copyText(location.href.split("#")[0] + `#${button.dataset.link}`);
  else if (button.id === "print") window.print();
});

window.addEventListener("hashchange", followHash);
followHash();
