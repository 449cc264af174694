"""A name server on the loopback interface: every name has the address 127.0.0.1."""

import socket

server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    query, client = server.recvfrom(512)
    # The question ends after the name, two bytes of type and two of class.
    end = query.index(b"\0", 12) + 5
    kind = query[end - 4 : end - 2]
    is_address = kind == b"\0\x01"
    answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x7f\0\0\x01" if is_address else b""
    counts = b"\0\x01" + (b"\0\x01" if is_address else b"\0\0") + b"\0\0\0\0"
    server.sendto(query[:2] + b"\x81\x80" + counts + query[12:end] + answer, client)
