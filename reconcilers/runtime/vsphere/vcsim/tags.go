package vcsim

import (
	"context"
	"fmt"

	"github.com/vmware/govmomi/vapi/rest"
	_ "github.com/vmware/govmomi/vapi/simulator" // serves the REST API
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
)

// Tag attaches a tag to a host, and makes it and its category if there is none yet. It logs in and out for that.
func (v *VCenter) Tag(ctx context.Context, host, category, name string) (err error) {
	address := *v.server.URL
	address.User = nil
	vc, err := vim25.NewClient(ctx, soap.NewClient(&address, true))
	if err != nil {
		return fmt.Errorf("reaching the simulator: %w", err)
	}
	client := rest.NewClient(vc)
	if err := client.Login(ctx, v.User()); err != nil {
		return fmt.Errorf("logging in to the simulator: %w", err)
	}
	defer func() { _ = client.Logout(ctx) }()
	manager := tags.NewManager(client)
	if _, err := manager.GetCategory(ctx, category); err != nil {
		if _, err := manager.CreateCategory(ctx, &tags.Category{Name: category, Cardinality: "MULTIPLE"}); err != nil {
			return fmt.Errorf("making category %s: %w", category, err)
		}
	}
	tag, err := manager.GetTagForCategory(ctx, name, category)
	if err != nil {
		id, err := manager.CreateTag(ctx, &tags.Tag{Name: name, CategoryID: category})
		if err != nil {
			return fmt.Errorf("making tag %s: %w", name, err)
		}
		tag = &tags.Tag{ID: id}
	}
	if err := manager.AttachTag(ctx, tag.ID, v.host(host).Self); err != nil {
		return fmt.Errorf("attaching tag %s: %w", name, err)
	}
	return nil
}
