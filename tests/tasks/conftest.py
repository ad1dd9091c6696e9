"""The places of stores, for tasks that outlive their process."""

from tests.stores.conftest import mysql as mysql
from tests.stores.conftest import place as place
from tests.stores.conftest import postgres as postgres
from tests.stores.conftest import redis_url as redis_url
