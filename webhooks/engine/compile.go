package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"

	"sallyport.dev/sallyport/webhooks/engine/builtins"
	"sallyport.dev/sallyport/webhooks/engine/plan"
)

// Policy is one compiled revision of a policy. It is immutable and safe for concurrent use.
type Policy struct {
	name     string
	revision string
	timeout  time.Duration
	reads    []Read
	facts    []string
	rules    outcomeRules
	pkg      ast.Ref // of the outcome rules

	compiler *ast.Compiler
	store    storage.Store
	txn      storage.Transaction // one read transaction for good: nothing ever writes to this store
	data     *ast.Term           // the same for programs
	first    round               // the facts that depend on the request alone
	second   round               // the facts that depend on facts of the first round
	queries  map[endpoint]*query
	outcome  *query // nil without outcome
	// outcomeShape is the shape of an outcome.
	outcomeShape shape

	existential map[string]bool // facts of which a denial needs only the objects that it is based on
	unindexed   CompileErrors   // see Unindexed
	compared    []comparedFact  // others that are looked up by fields

	types      *typeChecks // nil if types are not known
	parts      map[string]*Part
	paths      func() *inputPaths // names of members of input for errors, made lazily
	leftBehind atomic.Int64       // evaluations that exceeded their deadline and still run

	interpreted atomic.Bool  // queries are evaluated without programs
	decided     atomic.Int64 // number of decisions
}

// Name returns the name of the policy.
func (p *Policy) Name() string { return p.name }

// Revision identifies what the policy was compiled from: modules, imported libraries, parameters, reads and timeout.
func (p *Policy) Revision() string { return p.revision }

// Reads returns the kinds that its facts may query.
func (p *Policy) Reads() []Read { return slices.Clone(p.reads) }

// Validates reports whether the policy has deny or warn rules.
func (p *Policy) Validates() bool { return p.queries[admit] != nil }

// Mutates reports whether the policy has patch rules.
func (p *Policy) Mutates() bool { return p.queries[mutate] != nil }

// Arbitrates reports whether the policy has outcome rules.
func (p *Policy) Arbitrates() bool { return p.outcome != nil }

// Mentions reports whether a string is a constant in the policy or its libraries, such as the name of a field that it reads.
func (p *Policy) Mentions(constant string) (found bool) {
	for _, m := range p.compiler.Modules {
		ast.WalkTerms(m, func(t *ast.Term) bool {
			found = found || ast.String(constant).Equal(t.Value)
			return found
		})
	}
	return found
}

// Compile compiles a policy. The error is [CompileErrors], with file, line and column of all errors.
func Compile(src Source) (*Policy, error) { return compilePolicy(src, false) }

// compilePolicy is Compile. An interpreted policy has no programs: topdown evaluates it, on the whole input.
func compilePolicy(src Source, interpreted bool) (*Policy, error) {
	modules, libraries, err := assemble(src)
	if err != nil {
		return nil, err
	}
	rules, errs := checkContract(src, modules, libraries)
	if len(errs) > 0 {
		return nil, errs.ofContract()
	}
	parameters, err := parseParameters(src)
	if err != nil {
		return nil, err
	}
	p := &Policy{
		name: src.Name, timeout: src.Timeout, reads: src.Reads, facts: rules.facts, pkg: rules.pkg,
		revision: revision(src, libraries), queries: map[endpoint]*query{}, outcomeShape: rules.outcome,
	}
	p.paths = sync.OnceValue(func() *inputPaths { return newInputPaths(p.compiler, p.ruleRefs(ruleValid, ruleFacts)) })
	p.interpreted.Store(interpreted)
	data := map[string]any{"parameters": parameters}
	p.data = ast.NewTerm(ast.MustInterfaceToValue(data))
	p.store = inmem.NewFromObjectWithOpts(data,
		inmem.OptRoundTripOnWrite(false), inmem.OptReturnASTValuesOnRead(true))
	if p.txn, err = p.store.NewTransaction(context.Background()); err != nil {
		return nil, err
	}
	if err := p.link(src, rules, modules, slices.Concat(modules, libraries)); err != nil {
		return nil, err
	}
	return p, p.checkParameters(rules)
}

// checkParameters evaluates valid_parameters. Parameters are the same for every request, so it is evaluated once.
func (p *Policy) checkParameters(c *contract) error {
	if c.parameters == nil {
		return nil
	}
	query, err := p.query(fmt.Sprintf("%v.%s = true", c.pkg, ruleParameters))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), parametersTimeout)
	defer cancel()
	var errs CompileErrors
	switch found, err := p.evaluate(ctx, Input{}, query, Value{}); {
	case err != nil:
		errs.add(c.parameters.Location, "validating spec.parameters: %v", err)
	case len(found) == 0:
		errs.add(c.parameters.Location, "spec.parameters are not valid; required: %s", cmp.Or(descriptionIn(c.parameters), "rule "+ruleParameters+" is true"))
	}
	for i := range errs {
		errs[i].Parameters = true
	}
	return errs.orNil()
}

// parametersTimeout limits the evaluation of valid_parameters. It is long, so that a busy machine does not make a policy invalid.
const parametersTimeout = 10 * time.Second

// CheckLibrary checks modules that policies import: that they compile in strict mode, and read neither input nor parameters. The
// error is [CompileErrors].
func CheckLibrary(src Source) error {
	modules, _, err := assemble(src)
	if err != nil {
		return err
	}
	c := &contract{}
	for _, m := range modules {
		c.library(m)
		if !m.Package.Path.HasPrefix(packageRef(src.Package)) {
			c.errs.add(m.Package.Location, "package %s is not spec.package %s or below it", packageName(m), src.Package)
		}
	}
	return c.errs.ofContract().orNil()
}

// assemble parses modules, selects the libraries that they import and compiles both in strict mode. Errors of libraries that are
// not imported are ignored.
func assemble(src Source) (modules, libraries []*ast.Module, err error) {
	modules, errs := parse(src.Modules)
	if len(errs) > 0 {
		return nil, nil, errs
	}
	pool, broken := parse(src.Libraries)
	libraries = imported(modules, pool)
	if errs = unresolved(modules, libraries); len(errs) > 0 {
		return nil, nil, append(errs, broken...)
	}
	return modules, libraries, compileStrict(slices.Concat(modules, libraries), src.Schema)
}

// compileStrict compiles only the author's text, so that strict mode reports nothing about generated rules.
func compileStrict(modules []*ast.Module, schema []byte) error {
	compiler := newCompiler().WithStrict(true)
	if len(schema) > 0 {
		var decoded any
		if err := json.Unmarshal(schema, &decoded); err != nil {
			return fmt.Errorf("reading the schema of input: %w", err)
		}
		schemas := ast.NewSchemaSet()
		schemas.Put(ast.SchemaRootRef, decoded)
		compiler = compiler.WithSchemas(schemas)
	}
	compiler.Compile(byName(modules))
	var errs CompileErrors
	if errs.addOPA(compiler.Errors); len(errs) > 0 {
		return errs
	}
	return unknownRules(compiler).orNil()
}

// link compiles all modules together with the policy's instrumented rules, and prepares the queries.
func (p *Policy) link(src Source, c *contract, modules, all []*ast.Module) error {
	linked := byName(all)
	made, rules := instrument(c.pkg, modules)
	maps.Copy(linked, made)
	p.rules = rules
	p.compiler = newCompiler()
	if p.compiler.Compile(linked); p.compiler.Failed() {
		var errs CompileErrors
		errs.addOPA(p.compiler.Errors)
		return errs
	}
	if err := p.inRounds(); err != nil {
		return err
	}
	var err error
	for _, e := range []endpoint{admit, mutate} {
		speaks := slices.ContainsFunc(rules, func(r outcomeRule) bool { return endpointOf(r.name) == e })
		if !speaks && (e == mutate || !c.has[ruleOutcome]) {
			continue
		}
		q := fmt.Sprintf("%v.valid_input = true", c.pkg)
		if speaks {
			q += fmt.Sprintf("; yields = %v.%s", c.pkg, e.yields())
		}
		if p.queries[e], err = p.query(q); err != nil {
			return err
		}
	}
	if c.has[ruleOutcome] {
		p.outcome, err = p.query(fmt.Sprintf("outcome = [x | x = %v.outcome]", c.pkg))
	}
	p.followFacts(modules)
	p.findUnindexed(modules)
	p.types = newTypeChecks(src, p)
	p.parts = follow(p.compiler, p.outputs()...).parts(p.facts)
	return err
}

// outputs returns all rules that are queried.
func (p *Policy) outputs() []ast.Ref {
	return p.ruleRefs(ruleFacts, ruleValid, admit.yields(), mutate.yields(), ruleOutcome)
}

func (p *Policy) ruleRefs(rules ...string) []ast.Ref {
	refs := make([]ast.Ref, len(rules))
	for i, name := range rules {
		refs[i] = p.pkg.Append(ast.StringTerm(name))
	}
	return refs
}

// query is a query of the policy's rules.
type query struct {
	body    ast.Body
	program *plan.Program
	lacks   error // why there is no program
}

// query compiles a query. It fails if the policy makes it impossible, as when valid_input is always a string.
func (p *Policy) query(text string) (*query, error) {
	body, err := p.compiler.QueryCompiler().Compile(ast.MustParseBody(text))
	if err != nil {
		return nil, CompileErrors{{File: p.name, Message: fmt.Sprintf("asking `%s`: %v", text, err)}}
	}
	q := &query{body: body}
	q.program, q.lacks = plan.Compile(context.Background(), p.compiler, body, p.data)
	return q, nil
}

// newCompiler returns a compiler with the builtins of policies and additional ones.
func newCompiler(more ...*ast.Builtin) *ast.Compiler {
	c := builtins.Capabilities()
	c.Builtins = append(c.Builtins, more...)
	return withCharges(ast.NewCompiler().WithCapabilities(c))
}

func byName(modules []*ast.Module) map[string]*ast.Module {
	named := make(map[string]*ast.Module, len(modules))
	for _, m := range modules {
		named[packageName(m)+"/"+m.Package.Location.File] = m.Copy() // the compiler modifies its input
	}
	return named
}

func parseParameters(src Source) (map[string]any, error) {
	if len(src.Parameters) == 0 {
		return map[string]any{}, nil
	}
	parsed, err := ParseValue(src.Parameters)
	if err == nil && builtins.TooLarge(parsed.orNull()) != nil {
		err = builtins.ErrNumber
	}
	if err == nil {
		decoded, _ := parsed.Decode() // it was made from JSON
		if object, ok := decoded.(map[string]any); ok {
			return object, nil
		}
		err = errors.New("not an object")
	}
	return nil, CompileErrors{{File: src.Name, Message: fmt.Sprintf("spec.parameters: %v", err), Parameters: true}}
}

func revision(src Source, libraries []*ast.Module) string {
	used := slices.DeleteFunc(slices.Clone(src.Libraries), func(m Module) bool {
		return !slices.ContainsFunc(libraries, func(l *ast.Module) bool { return l.Package.Location.File == m.Name })
	})
	src.Libraries, src.Tests = used, nil
	text, err := json.Marshal(src)
	if err != nil {
		panic(err) // a Source holds nothing that cannot be marshalled
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:12]
}
