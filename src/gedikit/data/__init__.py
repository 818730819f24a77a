"""From files and names to arrays, and from arrays to views."""
