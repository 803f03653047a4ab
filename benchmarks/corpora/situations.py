"""Ordinary situations at a keyboard: what a person has written, with the cursor at `▏`. Two blank lines divide them.

Nobody chose them for what the model writes there. Those that were reported stand first.
"""

from benchmarks.corpora.cuts import Gap, GapKind

_CURSOR = "▏"
_TEXT = '''
class Order:
    def __init__(self, name, total):
        self.name = name
        self.total = total

orders = [Order("joe", ▏)]


def scale(a: int, b: ▏


PRIMES = [2, 3, 5, 7, 11, ▏


assert len("abc"▏


class Box:
\tdef __init__(self, a):
\t\tself.a = a

\tdef get_a(self):
\t\t▏


class Pair:
    def __init__(self, a, b):
        self.a = a
        self.b = b

    def __iter__(self):
        return iter((self.a, se▏


class PaletteTest(unittest.TestCase):
    def test_palette(self):
        image = self.read("image.png")
        self.asse▏(image['palette'], '3/4/2')


class Shop:
    def __init__(self, orders):
        self.orders = orders

    def total(self):
        return sum(▏.total for order in self.orders)


x = "▏😀"


total = 1 +▏ 2


class Point:
\tdef __init__(self, x):
\t\tself.x = x

\tdef get_x(self):▏


class Point:
    def __init__(self, x):
        self.x = x

    def get_x(self):▏


class Bag:
\tdef count(self, items):
\t\tfor item in items:
\t\t\tself.num_items += 1
if item:▏


class Bag:
\tdef count(self, items):
\t\tfor item in items:
▏


class Account:
    def __init__(self, owner, balance, limit):
        self.owner = owner
        self.balance = balance
        ▏


import asyncio

async def main():
    await asyncio.sleep(0)
    ▏


TABLE = [
    0,
    ▏
]


def area(radius):
    ▏


def mean(values):
    return ▏


def read_config(path):
    with open(path) as f:▏


for i in range(▏


for name, value in ▏


if x is ▏


while True:
    line = ▏


try:
    import json
except ▏


import os
import ▏


from collections import ▏


def fib(n):
    if n < 2:
        return n
    return ▏


class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        ▏


class Stack:
    def __init__(self):
        self.items = []

    def pop(self):
        return self.▏


names = ["anna", "bert", ▏


colors = {"red": 1, "green": 2, ▏


matrix = [
    [1, 0, 0],
    [0, 1, 0],
    ▏


print("Hello, ▏


print(f"{name} has {▏


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verbose", ▏


def main():
    pass

if __name__ == ▏


import unittest

class TestStack(unittest.TestCase):
    def test_push(self):
        stack = Stack()
        stack.push(1)
        self.assert▏


with open("data.csv") as f:
    reader = csv.▏


def greet(name, greeting="Hello"):
    """▏


# Compute the mean of ▏


x = [i for i in ▏


squares = {n: n * n for ▏


raise ValueError(▏


def is_even(n):
    return n % ▏


lambda x: ▏


a, b = ▏


@property
def ▏


@dataclass
class Point:
    x: int
    y: ▏


def add(a, b):
    return a ▏


logging.basicConfig(▏


logger = logging.getLogger(▏


response = requests.get(▏


data = json.loads(▏


result = subprocess.run([▏


os.path.join(▏


sorted(items, key=▏


if not os.path.exists(path):
    ▏


def __repr__(self):
    return f"{▏


def __eq__(self, other):
    return ▏


self.width = width
self.height = ▏


DEBUG = ▏


MONTHS = ["January", "February", ▏


DAYS = ("mon", "tue", ▏


values = [0, 0, 0, ▏


x, y, z = 0, 0, ▏


assert result == ▏


return [line.strip() for line in ▏


def test_add():
    assert add(1, 2) == 3
    assert ▏


print(1)
print(2)
▏


x = 1
y = 2
▏


def f(x, y, z):
    return x + y + ▏


s = "a" + "b" + ▏


total = 0
for order in orders:
    total += ▏


def find(items, wanted):
    for item in items:
        if item == wanted:
            ▏


import re

PATTERN = re.compile(r"▏


def parse(text):
    lines = text.split(▏


class Node:
    def __init__(self, value, left=None, right=None):
        self.value = value
        self.left = ▏


class Animal:
    def speak(self):
        raise NotImplementedError

class Dog(▏


def area(self, width, height):
    return wi▏


def shape(self):
    return (self.width, ▏)


def size(values):
    return le▏(values)


items.append(▏)


if (a == 1 and ▏):
    pass


x = foo(▏, 1)


d["key"] = ▏


elif command == "stop":
    ▏


else:
    return ▏


async def fetch(session, url):
    async with session.get(url) as response:
        return ▏


queue = asyncio.Queue(▏


thread = threading.Thread(target=▏


def factorial(n):
\tif n == 0:
\t\treturn 1
\treturn ▏


def total(prices):
\tresult = 0
\tfor price in prices:
\t\t▏
'''


def list_situations() -> list[Gap]:
    """Returns the situations. Nobody knows what is missing."""
    texts = _TEXT.strip("\n").split("\n\n\n")
    cut = [text.partition(_CURSOR) for text in texts]
    return [Gap(GapKind.LINE, before, "", after + "\n") for before, _, after in cut]
