// The parameters of functions by the compiler of the project: TypeScript 5 or 6.
"use strict";
const path = require("node:path");
const { unionOf, withDocs, withDefault, literalValue, hiddenRole, closed, SIMPLE, GENERIC, NO_VALUE } = require("./typetext.cjs");

/** {key: {description, parameters, output, line, file}} of the exports, or of the members of the `object`, with these keys. */
function describeAll({ file, source, keys, object, typescript }) {
  const ts = require(typescript);
  const program = makeProgram(ts, file, source), checker = program.getTypeChecker(), root = program.getSourceFile(file);
  const module = root && checker.getSymbolAtLocation(root);
  const exported = new Map((module ? checker.getExportsOfModule(module) : []).map((symbol) => [symbol.name, symbol]));
  let members = exported;
  if (object) {
    const holder = exported.get(object) ?? exported.get("default"), type = holder && checker.getTypeOfSymbol(resolveAlias(ts, checker, holder));
    const made = type?.getConstructSignatures()[0]?.getReturnType() ?? type?.getCallSignatures()[0]?.getReturnType() ?? type;
    members = new Map((made ? checker.getPropertiesOfType(checker.getAwaitedType(made) ?? made) : []).map((symbol) => [symbol.name, symbol]));
  }
  const found = {};
  for (const key of keys) {
    const symbol = members.get(key) && resolveAlias(ts, checker, members.get(key));
    const signature = symbol && checker.getTypeOfSymbol(symbol).getCallSignatures()[0];
    if (signature) found[key] = new Describer(ts, checker, root).signature(signature, symbol);
  }
  return found;
}

const resolveAlias = (ts, checker, symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);

function makeProgram(ts, file, source) {
  const config = ts.findConfigFile(path.dirname(file), ts.sys.fileExists);
  const read = config ? ts.parseJsonConfigFileContent(ts.readConfigFile(config, ts.sys.readFile).config ?? {}, ts.sys, path.dirname(config)).options : {};
  const options = {
    module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler, target: ts.ScriptTarget.ESNext, types: [], ...read, strict: true, allowJs: true, checkJs: true,
    noEmit: true, skipLibCheck: true, allowImportingTsExtensions: true, composite: false, incremental: false, declaration: false, lib: read.lib ?? ["lib.esnext.d.ts"],
  };
  const host = ts.createCompilerHost(options, true), readFile = host.readFile, getSourceFile = host.getSourceFile;
  if (typeof source === "string") {
    host.readFile = (name) => (path.resolve(name) === file ? source : readFile.call(host, name));
    host.getSourceFile = (name, ...more) => (path.resolve(name) === file ? ts.createSourceFile(name, source, more[0], true) : getSourceFile.call(host, name, ...more));
  }
  return ts.createProgram([file], options, host);
}

class Describer {
  constructor(ts, checker, root) { Object.assign(this, { ts, checker, root, open: [], definitions: {}, names: new Map() }); }

  signature(signature, symbol) {
    const { ts, checker } = this, declaration = signature.getDeclaration(), sourceFile = declaration?.getSourceFile() ?? this.root;
    const parameters = signature.getParameters().map((parameter) => this.parameter(parameter, declaration));
    const definitions = this.definitions;
    this.definitions = {};
    this.isOutput = true;
    const output = this.schema(resultType(checker, signature.getReturnType()));
    const isDeclared = declaration && (declaration.type ?? ts.getJSDocReturnType(declaration)); // an inferred type promises too much
    const isKnown = isDeclared && output.type === "object" && output.properties && !output.$js;
    return {
      description: text(ts, symbol.getDocumentationComment(checker)) || text(ts, signature.getDocumentationComment(checker)),
      parameters: parameters.map((parameter) => ({ ...parameter, definitions })),
      output: isKnown ? { ...output, ...(Object.keys(this.definitions).length && { $defs: this.definitions }) } : undefined,
      file: sourceFile.fileName, line: declaration ? sourceFile.getLineAndCharacterOfPosition(declaration.getStart()).line + 1 : undefined,
    };
  }

  parameter(symbol, signature) {
    const { ts, checker } = this, node = symbol.valueDeclaration, name = node?.name?.getText?.() ?? symbol.name;
    const typeText = node?.type?.getText() ?? (node && ts.getJSDocType(node)?.getText());
    const role = hiddenRole(typeText, name);
    if (role) return { name: symbol.name, role };
    let schema = this.schema(checker.getTypeOfSymbolAtLocation(symbol, node ?? this.root));
    if (!Object.keys(schema).length && Object.hasOwn(SIMPLE, typeText)) schema = SIMPLE[typeText]; // of a library that is not loaded
    const isPattern = node?.name && ts.isObjectBindingPattern(node.name);
    const docs = signature ? ts.getJSDocTags(signature).filter(ts.isJSDocParameterTag) : [];
    for (const tag of docs) {
      const [owner, ...inner] = tag.name.getText().split("."), key = inner.join("."), comment = ts.getTextOfJSDocComment(tag.comment) ?? "";
      if (key && (owner === symbol.name || isPattern) && schema.properties?.[key] && !schema.properties[key].description) schema = { ...schema, properties: { ...schema.properties, [key]: withDocs(schema.properties[key], comment.replace(/^-\s*/, "")) } };
    }
    for (const element of isPattern ? node.name.elements : []) {
      const key = (element.propertyName ?? element.name).getText();
      if (element.initializer && schema.properties?.[key]) schema = withDefault(schema, key, this.value(element.initializer));
    }
    if (!isPattern) schema = withDocs(schema, text(ts, symbol.getDocumentationComment(checker)));
    const fallback = node?.initializer && !isPattern ? this.value(node.initializer) : undefined;
    if (fallback !== undefined) schema = { ...schema, default: fallback };
    const isRest = Boolean(node?.dotDotDotToken);
    return { name, schema, isRest, required: !(isRest || node?.initializer || node?.questionToken || (node && ts.isParameter(node) && checker.isOptionalParameter(node))) };
  }

  /** The value of a literal, of a member of an enum, or of a constant. */
  value(node) {
    const literal = literalValue(node.getText()), value = literal ?? this.checker.getTypeAtLocation(node).value;
    return literal === undefined && typeof value === "object" ? undefined : value; // a big integer is an object there
  }

  /** The schema of a type. A type that contains itself is a definition. */
  schema(type) {
    const { ts } = this, { TypeFlags: is } = ts;
    if (type.flags & (is.Any | is.Unknown)) return {};
    if (type.flags & (is.Undefined | is.Void | is.Never)) return NO_VALUE;
    if (type.flags & is.Null) return SIMPLE.null;
    if (type.flags & is.BooleanLiteral) return { type: "boolean", const: type.intrinsicName === "true" };
    if (type.isStringLiteral() || type.isNumberLiteral()) return { type: typeof type.value, const: type.value };
    if (type.flags & is.BigIntLike) return SIMPLE.bigint;
    const primitive = type.isIntersection() && type.types.find((part) => part.flags & (is.StringLike | is.NumberLike | is.BigIntLike));
    if (primitive) return this.schema(primitive); // string & {}, and types with a brand
    if (type.isUnion()) return unionOf(type.types.map((part) => this.schema(part)));
    if (type.flags & is.StringLike) return SIMPLE.string;
    if (type.flags & is.NumberLike) return SIMPLE.number;
    if (type.flags & is.BooleanLike) return SIMPLE.boolean;
    if (type.flags & is.NonPrimitive) return SIMPLE.object;
    if (type.flags & is.TypeParameter) return type.getConstraint() ? this.schema(type.getConstraint()) : {};
    const name = type.aliasSymbol?.name ?? type.symbol?.name;
    if (this.open.includes(type)) {
      if (!this.names.has(type)) this.names.set(type, `${/^\w+$/.test(name ?? "") && name !== "__type" ? name : "Type"}${this.names.size || ""}`);
      return { $ref: `#/$defs/${this.names.get(type)}` };
    }
    this.open.push(type);
    try {
      const schema = this.object(type);
      if (!this.names.has(type)) return schema;
      this.definitions[this.names.get(type)] = schema;
      return { $ref: `#/$defs/${this.names.get(type)}` };
    } finally {
      this.open.pop();
    }
  }

  object(type) {
    const { ts, checker } = this, name = type.symbol?.name, parameters = checker.getTypeArguments?.(type.objectFlags & ts.ObjectFlags.Reference ? type : { target: {} }) ?? [];
    if (checker.isArrayType(type)) return GENERIC.Array(this.schema(parameters[0]));
    if (checker.isTupleType(type)) return this.tuple(type, parameters);
    const isLibrary = type.symbol?.declarations?.some((node) => /[\\/](lib\.[\w.]+|node_modules[\\/]@types[\\/]node[\\/].*)\.d\.[mc]?ts$/.test(node.getSourceFile().fileName));
    if (isLibrary && /^(Date|URL|Uint8Array|Buffer|Function)$/.test(name)) return SIMPLE[name];
    if (isLibrary && /^(Readonly)?(Set|Map)$/.test(name)) return GENERIC[name.replace("Readonly", "")](...parameters.map((part) => this.schema(part)));
    if (type.getCallSignatures().length) return SIMPLE.Function;
    const properties = {}, required = [];
    for (const property of checker.getPropertiesOfType(type)) {
      const type_ = checker.getTypeOfSymbolAtLocation(property, property.valueDeclaration ?? this.root), schema = this.schema(type_);
      if (schema.$js === "function" || property.name.startsWith("__@")) continue;
      const tags = property.getJsDocTags(checker).map((tag) => [tag.name, text(ts, tag.text)]);
      properties[property.name] = withDocs(schema, text(ts, property.getDocumentationComment(checker)), tags);
      const mayMiss = property.flags & ts.SymbolFlags.Optional || (type_.isUnion() && type_.types.some((part) => part.flags & ts.TypeFlags.Undefined));
      if (!mayMiss && schema !== NO_VALUE) required.push(property.name);
    }
    const index = type.getStringIndexType?.() ?? type.getNumberIndexType?.();
    if (index) return { type: "object", ...(Object.keys(properties).length && { properties, required }), additionalProperties: this.schema(index) };
    const description = type.symbol && text(ts, type.symbol.getDocumentationComment(checker));
    return { ...closed(properties, required), ...(this.isOutput && { additionalProperties: undefined }), ...(description && { description }) };
  }

  tuple(type, parameters) {
    const { elementFlags } = type.target, isRest = (at) => elementFlags[at] & (this.ts.ElementFlags.Rest | this.ts.ElementFlags.Variadic);
    const items = parameters.filter((_, at) => !isRest(at)).map((part) => this.schema(part)), rest = parameters.find((_, at) => isRest(at));
    const least = elementFlags.filter((flag) => flag & this.ts.ElementFlags.Required).length;
    return { type: "array", prefixItems: items, items: rest ? this.schema(rest) : false, minItems: least, ...(!rest && { maxItems: items.length }) };
  }
}

/** The type of the result: without its promise; of a generator what it returns, else what it yields. */
function resultType(checker, type) {
  const awaited = checker.getAwaitedType(type) ?? type;
  if (!/^(Async)?(Generator|IterableIterator|Iterable)$/.test(awaited.symbol?.name ?? "")) return awaited;
  const [yielded, returned] = checker.getTypeArguments(awaited);
  return !returned || /^(void|undefined|any|unknown)$/.test(checker.typeToString(returned)) ? yielded : returned;
}

const text = (ts, parts) => ts.displayPartsToString(parts ?? []).trim().replace(/^-\s+/, "");

module.exports = { describeAll };
