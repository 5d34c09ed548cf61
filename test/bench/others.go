package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What Sallyport is compared with: OPA and CEL as they are used from Go without further thought. Both get their facts out of the
// same caches, by index; neither makes a response, keeps a record, counts, or has a deadline.

const (
	rowNaive      = "naive"
	rowNaiveFresh = "naive-fresh"
	rowCEL        = "cel"
)

// judge tells whether a request is denied.
type judge func(request map[string]any, machine any, unfinished []any) (denied bool, err error)

// others are the rows of a subject that are not requests to Sallyport.
func (w *world) others() (map[string]func(n int) error, error) {
	prepared, fresh, err := w.naive()
	if err != nil {
		return nil, fmt.Errorf("preparing OPA: %w", err)
	}
	single, err := w.cel()
	if err != nil {
		return nil, fmt.Errorf("preparing CEL: %w", err)
	}
	rows := map[string]func(n int) error{}
	for name, denied := range map[string]judge{rowNaive: prepared, rowNaiveFresh: fresh, rowCEL: single} {
		next := 0
		rows[name] = func(n int) error {
			for range n {
				next++
				if err := w.judged(of(reviewFor, idle(next)), denied); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return rows, nil
}

func (w *world) judged(body []byte, denied judge) error {
	var review struct{ Request map[string]any }
	if err := json.Unmarshal(body, &review); err != nil {
		return err
	}
	name, _, _ := unstructured.NestedString(review.Request, "object", "spec", "virtualMachineName")
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VirtualMachine"))
	if err := w.cache.Get(context.Background(), client.ObjectKey{Namespace: "team-a", Name: name}, machine); err != nil {
		return err
	}
	operations := &unstructured.UnstructuredList{}
	operations.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("VirtualMachineOperationList"))
	if err := w.cache.List(context.Background(), operations, client.InNamespace("team-a"), client.MatchingFields{"spec.virtualMachineName": name}); err != nil {
		return err
	}
	unfinished := make([]any, len(operations.Items))
	for i := range operations.Items {
		unfinished[i] = operations.Items[i].Object
	}
	is, err := denied(review.Request, machine.Object, unfinished)
	if err == nil && is {
		err = errors.New("an idle machine is denied")
	}
	return err
}
