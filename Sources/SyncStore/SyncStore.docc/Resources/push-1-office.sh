mkdir -p documents
echo "Rotterdam, 6 o'clock" > documents/orders.txt
sync-cli --store office init --name office
sync-cli --store office import documents --prefix documents/
sync-cli --store office list
