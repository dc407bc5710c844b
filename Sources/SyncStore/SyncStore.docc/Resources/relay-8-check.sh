sync-cli --store vessel sync stick
sync-cli --store pier sync stick
for store in office vessel pier; do
  sync-cli --store $store digest
done
