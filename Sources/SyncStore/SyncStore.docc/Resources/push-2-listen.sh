sync-cli --store office serve --listen 127.0.0.1:7420
