test "$(sync-cli --store office digest)" = "$(sync-cli --store vessel digest)"
sync-cli --store office get log/1
sync-cli --store office why log/1
