"""Request bodies, queries and answers as typed Structs. The OpenAPI document is generated from them."""
