/** A product of the shop. */
interface Product {
  id: string;
  name: string;
  price: number;
}

const PRODUCTS: Product[] = [
  { id: "K-1", name: "Electric kettle", price: 39.9 },
  { id: "K-2", name: "Copper kettle", price: 89 },
  { id: "T-1", name: "Toaster", price: 45.5 },
];

/**
 * Finds products of the shop. Use it before an order, because an order needs the id of a product.
 * @param word Part of the name of a product
 * @param maxPrice Highest price in euros
 */
export function findProducts(word: string, maxPrice: number = 1000): Product[] {
  return PRODUCTS.filter(({ name, price }) => name.toLowerCase().includes(word.toLowerCase()) && price <= maxPrice);
}

/**
 * Orders a product. Use it only when the customer has agreed to the price.
 * @param productId Id of the product, such as K-1
 * @param quantity Number of pieces
 */
export async function placeOrder(productId: string, quantity: number = 1): Promise<{ productId: string; total: number }> {
  const product = PRODUCTS.find(({ id }) => id === productId);
  if (!product) throw new Error(`there is no product ${productId}; findProducts lists them`);
  return { productId, total: product.price * quantity };
}
