"""Settings for Django's own tests: two databases on the server that the environment names."""

import os


def database(name):
    return {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["SERVER_HOST"],
        "PORT": os.environ["SERVER_PORT"],
        "USER": "django",
        "PASSWORD": "django",
        "NAME": name,
    }


DATABASES = {"default": database("django"), "other": database("django_other")}
# Tests expect this one.
SECRET_KEY = "django_tests_secret_key"
# The usual one takes its time on purpose.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "evenkeel_runner.Runner"
