sync-cli --store vessel push office
sync-cli --store vessel pull office
sync-cli --store vessel sync office
