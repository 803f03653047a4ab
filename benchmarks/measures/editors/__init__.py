"""What people at an editor notice: random editing in real editors, typed-ahead keys, repeats, time and memory."""
