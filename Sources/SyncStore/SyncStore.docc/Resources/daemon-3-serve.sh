sync-cli --store shared serve --check --config serve.json
sync-cli --store shared serve --config serve.json
