"""The browser: a page that plays a playback, served on this machine alone or written for any static host."""
