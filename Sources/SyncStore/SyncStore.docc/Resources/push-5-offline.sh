sync-cli --store vessel get documents/orders.txt
sync-cli --store vessel put log/1 "left port"
echo "12 crates" > cargo.txt
sync-cli --store vessel put documents/cargo.txt --file cargo.txt
