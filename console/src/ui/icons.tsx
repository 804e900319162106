// Outline icons of 16 by 16, drawn for the console.

const PATHS = {
  now: "M2 8h2.5l1.8-4.5L9.5 12l1.8-4H14",
  calls: "M2.5 4h11M2.5 8h11M2.5 12h7",
  runs: "M3.5 2.5v11M3.5 6H8v4.5h4.5M8 6h4.5",
  tools: "M9.8 2.7a3.4 3.4 0 0 0-4.2 4.4L2.3 10.4a1.6 1.6 0 0 0 2.3 2.3l3.3-3.3a3.4 3.4 0 0 0 4.4-4.2L10.2 7.3 8 6.9l-.3-2.1z",
  approvals: "M8 1.8 13 4v4c0 3-2.2 5-5 6.2C5.2 13 3 11 3 8V4zM5.7 8l1.7 1.7 3-3.2",
  usage: "M2.5 13.5h11M4.5 11V8M8 11V3.5M11.5 11V6",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6M8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9",
  moon: "M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  back: "M9.5 3.5 5 8l4.5 4.5",
  next: "M6.5 3.5 11 8l-4.5 4.5",
  download: "M8 2.5v7.5M4.8 7 8 10.2 11.2 7M3 13.5h10",
  play: "M5 3.2v9.6L12.5 8z",
  out: "M6.5 2.5h-4v11h4M6 8h8M11 5l3 3-3 3",
  bell: "M4 11.5V7a4 4 0 0 1 8 0v4.5M2.8 11.5h10.4M6.8 13.7h2.4",
  search: "M7 2.8a4.2 4.2 0 1 0 0 8.4 4.2 4.2 0 0 0 0-8.4M10.2 10.2l3.3 3.3",
  plus: "M8 3v10M3 8h10",
  book: "M3 2.5h7.5a2 2 0 0 1 2 2v9H5a2 2 0 0 1-2-2zM3 11.5a2 2 0 0 1 2-2h7.5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}
