"""The browser viewer: a web page that plays a playback, served locally or exported for any static host."""
