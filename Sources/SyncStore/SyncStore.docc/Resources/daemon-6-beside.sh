sync-cli --store shared put price/pears 2.4 --type double
sync-cli --store shared list price/ --long
