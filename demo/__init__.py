"""A gunicorn server with one limit over all its workers, put under load: `make demo`."""
