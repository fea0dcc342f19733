//! Reports from inside a game pod who is on it, and carries out doors and drains.
