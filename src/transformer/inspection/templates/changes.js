// What if: changes of the pass that the served page can ask for.

/** Returns the form of changes, or null where no server can compute another pass. */
function changesForm() {
  if (!window.INSPECTOR.served) return null;
  const now = facts.changes;
  const field = (name, label, value, properties = {}) => el("label", { class: "field" }, el("span", {}, label), el("input", { name, value: value ?? "", ...properties }));
  const tokens = (facts.picture ? [] : readTokens ?? []).map((token, position) => toggle(`mask-${position}`, token, now.mask_source.includes(position)));
  const heads = facts.attention.map((one) => el("div", { class: "heads" },
    el("span", { class: "soft" }, `${capital(one.kind)}, layer ${one.layer}`),
    ...Array.from({ length: facts.tensors[one.tensor].shape[1] }, (_, head) => toggle(`mute-${one.module}-${head}`, `head ${head + 1}`, (now.mute_heads[one.module] ?? []).includes(head)))));
  const message = el("p", { class: "note", role: "alert", hidden: true });
  const form = el("form", {
    submit: async (event) => {
      event.preventDefault();
      const button = form.querySelector("button");
      button.disabled = true;
      try {
        await openPass(readChanges(form), message);
      } finally {
        button.disabled = false;
      }
    },
  },
  field("text", facts.picture ? "Path of the image" : "Text", facts.text, { required: true }),
  facts.tokens.S ? field("target", "Target (if empty, the model's own translation)", facts.target) : null,
  field("temperature", "Temperature of the softmax over the vocabulary", now.temperature, { type: "number", min: 0.01, max: 100, step: "any" }),
  tokens.length ? el("fieldset", {}, el("legend", {}, "Hide source tokens from attention"), ...tokens) : null,
  el("fieldset", {}, el("legend", {}, "Mute heads: their weights become zero"), ...heads),
  el("button", { type: "submit" }, "Compute"), message);
  return el("details", { class: "changes", open: isChanged() }, el("summary", {}, "What if …"), form);
}

function toggle(name, text, isOn) {
  return el("label", { class: "toggle" }, el("input", { type: "checkbox", name, checked: isOn }), ` ${text}`);
}

function isChanged() {
  const { mask_source, mute_heads, temperature } = facts.changes;
  return mask_source.length > 0 || Object.keys(mute_heads).length > 0 || temperature !== 1;
}

/** Says what the user changed, and what the loss would be otherwise. */
function changedText() {
  const { mask_source, mute_heads, temperature } = facts.changes;
  const heads = facts.attention.filter((one) => mute_heads[one.module]?.length)
    .map((one) => `muted: ${one.kind}, layer ${one.layer}, head ${mute_heads[one.module].map((head) => head + 1).join(", ")}`);
  const hidden = mask_source.length ? [`hidden: ${mask_source.map((position) => readTokens?.[position] ?? position).join(", ")}`] : [];
  const list = [...heads, ...hidden, ...(temperature === 1 ? [] : [`temperature ${temperature}`])].join("; ");
  const before = facts.unchanged_loss;
  return `${list}. Loss ${show(facts.loss.value)}${before === null || before === undefined ? "" : `, without the changes ${show(before)}`}`;
}

/** Reads the form as the server expects it. */
function readChanges(form) {
  const asked = { text: form.elements.text.value, target: form.elements.target?.value || null, mask_source: [], mute_heads: {}, temperature: Number(form.elements.temperature.value) };
  for (const { name, checked } of form.querySelectorAll("input[type=checkbox]")) {
    if (!checked) continue;
    const [, kind, rest] = name.match(/^(mask|mute)-(.+)$/);
    if (kind === "mask") asked.mask_source.push(Number(rest));
    else {
      const [, module, head] = rest.match(/^(.+)-(\d+)$/);
      (asked.mute_heads[module] ??= []).push(Number(head));
    }
  }
  return asked;
}

/** Asks for another pass and opens its page at the same step; an error is shown instead. */
async function openPass(asked, message) {
  const token = encodeURIComponent(window.INSPECTOR.token);
  let answer;
  try {
    answer = await (await answerOf(`pass?token=${token}`, { method: "POST", body: JSON.stringify(asked) })).json();
  } catch (error) {
    message.textContent = error.message;
    message.hidden = false;
    return;
  }
  location.assign(`?token=${token}&pass=${answer.pass}${location.hash}`);
}
