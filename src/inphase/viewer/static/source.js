// Where a player gets its file from. Without byte ranges a browser cannot seek, so that the whole file is loaded first.
import { addressOf } from "./playback.js";

// Give a media element its file; `again` is called where it was loaded a second time.
export function load(media, path, again) {
  const address = addressOf(path);
  media.src = address;
  media.addEventListener("loadedmetadata", async () => {
    if (canJump(media)) return;
    try {
      const whole = await (await fetch(address)).blob();
      media.addEventListener("loadedmetadata", again, { once: true });
      media.src = URL.createObjectURL(whole);
    } catch {
      // It plays from the start, if no more.
    }
  }, { once: true });
}

function canJump({ seekable, duration }) {
  return seekable.length > 0 && seekable.end(seekable.length - 1) >= duration / 2;
}
