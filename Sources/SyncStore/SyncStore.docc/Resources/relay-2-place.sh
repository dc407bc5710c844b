mkdir stick
sync-cli --store office peer add stick dir:stick
sync-cli --store office relay check stick
sync-cli --store office push stick
