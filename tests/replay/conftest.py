"""The servers and places of the tests of stores."""

from tests.stores.conftest import mysql as mysql
from tests.stores.conftest import place as place
from tests.stores.conftest import postgres as postgres
from tests.stores.conftest import redis_url as redis_url
