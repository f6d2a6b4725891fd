"""``python -m reproduction``, which ``labkit reproduce`` runs."""

from reproduction.command import app

if __name__ == "__main__":
    app(prog_name="labkit reproduce")
