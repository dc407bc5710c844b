mkdir stick
for store in office vessel pier; do
  sync-cli --store $store peer add stick dir:stick
done
sync-cli --store office relay check stick
