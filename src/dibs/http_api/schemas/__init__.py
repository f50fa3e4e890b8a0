"""What goes over the wire: bodies, queries and answers as typed structs. The OpenAPI document is made from them."""
