"""The demo: how one tenant reads another's cache, with guards off and on."""
