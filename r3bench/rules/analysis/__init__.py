"""What rules need to know of a function before they change it: names, types, reads, writes, index expressions."""
