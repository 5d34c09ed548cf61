package tools

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/internal/choice"
	"sallyport.dev/sallyport/cmd/internal/format"
	"sallyport.dev/sallyport/policies/describe"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
)

// supersedePolicy is the name of the policy that `sallyport matrix` evaluates.
const supersedePolicy = "operations-supersede"

// asked is one form of an operation: a row or a column of the matrix.
type asked v1alpha1.OperationForm

func (a asked) String() string {
	if a.Force {
		return string(a.Type) + " (force)"
	}
	return string(a.Type)
}

// forms are all operations that users can request.
var forms = everyForm()

func everyForm() (all []asked) {
	for _, form := range v1alpha1.OperationForms() {
		all = append(all, asked(form))
	}
	return all
}

// pair is one cell of the matrix.
type pair struct {
	Running    asked `json:"running"`
	New        asked `json:"new"`
	Superseded bool  `json:"superseded"`
}

func newMatrixCommand() *cobra.Command {
	var paths []string
	output := "table"
	command := &cobra.Command{
		Use:   "matrix",
		Short: "Show which operations supersede which, according to the policy",
		Long: "Evaluates the policy " + supersedePolicy + " for every pair of a running and a new operation on the same machine.\n" +
			"Rows are running operations, columns are new operations. \"yes\" means that the new operation is admitted and\n" +
			"supersedes the running one; \"-\" means that it does not.\n\n" +
			"Exit codes: 0 on success, 2 if the policy cannot be read, compiled or evaluated.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			collection, err := policiesOf(command, paths)
			if err != nil {
				return err
			}
			set, err := collection.Set(command.Context())
			if err != nil {
				return err
			}
			pairs, err := matrix(command.Context(), set)
			if err != nil {
				return err
			}
			switch out := command.OutOrStdout(); output {
			case "table":
				return printTable(out, pairs)
			case "markdown":
				return printMarkdown(out, pairs)
			default:
				return format.Print(out, output, pairs)
			}
		},
	}
	command.Flags().StringSliceVar(&paths, "policies", nil, policiesUsage)
	choice.Flag(command, &output, "output", "o", "`format`: table, markdown or json", "table", "markdown", "json")
	return command
}

// matrix evaluates every pair, running operations outermost.
func matrix(ctx context.Context, set *catalog.Set) ([]pair, error) {
	policy := set.Policy(supersedePolicy)
	if policy == nil {
		return nil, fmt.Errorf("policy %s does not exist", supersedePolicy)
	}
	var pairs []pair
	for _, running := range forms {
		for _, wanted := range forms {
			superseded, err := supersedes(ctx, policy, running, wanted)
			if err != nil {
				return nil, fmt.Errorf("evaluating %s during %s: %w", wanted, running, err)
			}
			pairs = append(pairs, pair{Running: running, New: wanted, Superseded: superseded})
		}
	}
	return pairs, nil
}

func supersedes(ctx context.Context, policy *catalog.Policy, running, wanted asked) (bool, error) {
	request, err := engine.ValueOf(operationRequest(wanted))
	if err != nil {
		return false, err
	}
	in := engine.Input{Request: request, Now: time.Unix(0, 0)}
	decision, err := policy.Decide(ctx, in, matrixWorld{running})
	if err != nil {
		return false, err
	}
	superseded := slices.ContainsFunc(decision.Outcome.Get(catalog.OutcomeSupersedes).Elements(), func(v engine.Value) bool { return v.Text() == "running" })
	return len(decision.Denials) == 0 && superseded, nil
}

func operationRequest(wanted asked) map[string]any {
	return map[string]any{
		"operation": "CREATE", "namespace": matrixNamespace, "object": operationOf("new", wanted, ""),
	}
}

const matrixNamespace, matrixMachine = "default", "vm"

type matrixWorld struct{ running asked }

func (w matrixWorld) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	var answer any
	switch q.Kind {
	case "VirtualMachineOperation":
		answer = []any{operationOf("running", w.running, "InProgress")}
	case "VirtualMachine":
		answer = map[string]any{
			"metadata": map[string]any{"name": matrixMachine, "namespace": matrixNamespace, "uid": "uid-vm"},
			"spec":     map[string]any{"runPolicy": "Manual"},
			"status": map[string]any{"phase": "Running", "activeOperation": map[string]any{
				"id": "uid-running", "origin": "Operation", "name": "running",
				"type": string(w.running.Type), "force": w.running.Force,
			}},
		}
	default:
		return engine.Answer{}, fmt.Errorf("the matrix contains no objects of kind %s", q.Kind)
	}
	v, err := engine.ValueOf(answer)
	return engine.Answer{Value: v, Live: true}, err
}

func operationOf(name string, a asked, phase string) map[string]any {
	operation := map[string]any{
		"metadata": map[string]any{"name": name, "namespace": matrixNamespace, "uid": "uid-" + name},
		"spec":     map[string]any{"type": string(a.Type), "force": a.Force, "virtualMachineName": matrixMachine},
	}
	if phase != "" {
		operation["status"] = map[string]any{"phase": phase}
	}
	return operation
}

func printTable(out io.Writer, pairs []pair) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows(pairs) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

func printMarkdown(out io.Writer, pairs []pair) error {
	all := rows(pairs)
	_, err := io.WriteString(out, strings.TrimSuffix(describe.Table(all[0], all[1:]), "\n"))
	return err
}

// rows returns the matrix with its header: one row for each running operation, one column for each new one.
func rows(pairs []pair) [][]string {
	head := []string{"RUNNING / NEW"}
	for _, f := range forms {
		head = append(head, f.String())
	}
	all := [][]string{head}
	for i, p := range pairs {
		if i%len(forms) == 0 {
			all = append(all, []string{p.Running.String()})
		}
		cell := "-"
		if p.Superseded {
			cell = "yes"
		}
		all[len(all)-1] = append(all[len(all)-1], cell)
	}
	return all
}
