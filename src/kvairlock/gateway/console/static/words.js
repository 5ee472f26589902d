// Figures as people read them.

const NUMBER = new Intl.NumberFormat("en");

export const number = (value) => (value == null ? "unknown" : NUMBER.format(value));
export const tokens = (value) => (value ? `${number(value)} tokens` : "none");
export const words = (name) => String(name).replaceAll("_", " ");
export const list = (names) => (names?.length ? names.map(words).join(", ") : "none");

export function share(part, whole) {
  if (part == null || !whole) return "";
  const percent = (100 * part) / whole;
  if (percent > 0 && percent < 0.1) return "under 0.1 %";
  return `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

export function duration(ms) {
  if (ms == null) return "unknown";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

export const clock = (unixS) => new Date(unixS * 1000).toLocaleString("en-GB", { hour12: false });
