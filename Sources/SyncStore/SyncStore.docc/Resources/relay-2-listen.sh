SYNC_STORE=office sync-cli serve --listen 127.0.0.1:7420
