package main

import (
	"encoding/json"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// supersedeInCEL is the rule of one policy, without asking whether its input can be understood, and without a message.
const supersedeInCEL = `cel.bind(new, object.spec.type + (has(object.spec.force) && object.spec.force ? " force" : ""),
	unfinished.all(op, new in supersededBy[op.spec.type + (has(op.spec.force) && op.spec.force ? " force" : "")]))`

func (w *world) cel() (judge, error) {
	env, err := cel.NewEnv(ext.Bindings(), cel.Variable("object", cel.DynType),
		cel.Variable("unfinished", cel.ListType(cel.DynType)), cel.Variable("supersededBy", cel.DynType))
	if err != nil {
		return nil, err
	}
	compiled, issues := env.Compile(supersedeInCEL)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := env.Program(compiled, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, err
	}
	table, err := w.parameters("operations-supersede")
	if err != nil {
		return nil, err
	}
	return func(request map[string]any, _ any, unfinished []any) (bool, error) {
		result, _, err := program.Eval(map[string]any{
			"object": request["object"], "unfinished": unfinished, "supersededBy": table["supersededBy"],
		})
		if err != nil {
			return false, err
		}
		return result.Value() != true, nil
	}, nil
}

// parameters of a policy.
func (w *world) parameters(name string) (values map[string]any, err error) {
	for i := range w.policies {
		if p := &w.policies[i]; p.Name == name {
			err = json.Unmarshal(p.Spec.Parameters.Raw, &values)
		}
	}
	return values, err
}
