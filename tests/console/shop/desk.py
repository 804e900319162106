"""The tools of a shop's support desk, for the tests of the console."""

import asyncio
import struct
import zlib

from toolcrib import ToolContext, tool

ORDERS = {
    "A-1001": {"status": "shipped", "carrier": "PostNord", "total": 129.0},
    "A-1002": {"status": "packing", "carrier": None, "total": 48.5},
    "A-1003": {"status": "delivered", "carrier": "DHL", "total": 890.0},
}


def png(width, height, pixel):
    rows = b"".join(b"\0" + b"".join(bytes(pixel(x, y)) for x in range(width)) for y in range(height))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@tool
def order_status(order: str) -> dict:
    """Shows the status of one order. Use it for questions about one order.

    Args:
        order: Number of the order, such as A-1001.
    """
    if order not in ORDERS:
        raise ValueError(f"there is no order {order}")
    return {"order": order, **ORDERS[order]}


@tool
def search_products(text: str, max_price: float = 1000, colours: list[str] | None = None) -> list:
    """Searches the catalogue of the shop.

    Args:
        text: Words to look for.
        max_price: Highest price, in euros.
        colours: Only products in these colours.
    """
    names = ["Trail jacket", "Rain jacket", "Down jacket", "Wool jacket", "Bike jacket", "City jacket"]
    found = [{"sku": f"J-{410 + n}", "name": name, "colour": ["red", "navy", "green"][n % 3], "price": 59.0 + 31 * n, "stock": 4 * n}
             for n, name in enumerate(names)]
    return [row for row in found if row["price"] <= max_price and (not colours or row["colour"] in colours)]


@tool
def product_photo(sku: str) -> bytes:
    """Shows the photo of a product.

    Args:
        sku: Number of the product, such as J-411.
    """
    return png(320, 200, lambda x, y: (40 + x // 3, 90 + y // 2, 160 - x // 4) if 60 < x < 260 and y > 40 else (228, 232, 238))


@tool
def refund_payment(order: str, amount: float, reason: str) -> dict:
    """Pays money back to the customer of an order. Use it only when the customer has asked for it.

    Args:
        order: Number of the order.
        amount: Amount in euros.
        reason: Why, in a few words.
    """
    return {"refund": f"R-{order}", "amount": amount, "reason": reason}


@tool
async def stock_report(warehouses: int, tool_context: ToolContext, pause: float = 0.2) -> dict:
    """Counts the stock of all warehouses. Takes a while.

    Args:
        warehouses: Number of warehouses.
        pause: Seconds for each.
    """
    for number in range(1, warehouses + 1):
        tool_context.progress({"warehouse": number, "of": warehouses})
        await asyncio.sleep(pause)
    return {"warehouses": warehouses, "items": 1204 * warehouses}


@tool
def carrier_quote(parcel_kg: float) -> float:
    """Asks the carrier for the price of a parcel.

    Args:
        parcel_kg: Weight of the parcel in kilograms.
    """
    raise ConnectionError("carrier.example: connection refused")
