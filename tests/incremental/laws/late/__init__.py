"""Laws of what forgets by a lateness: random programs of its forms, over random histories, give what the changes on time give."""
