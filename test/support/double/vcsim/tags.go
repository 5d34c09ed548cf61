package vcsim

import (
	"context"
	"fmt"

	"github.com/vmware/govmomi/vapi/rest"
	_ "github.com/vmware/govmomi/vapi/simulator" // serves the REST API
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Tag attaches a tag to a host, and makes it and its category if there is none yet.
func (v *VCenter) Tag(ctx context.Context, host, category, name string) error {
	return v.tag(ctx, v.host(host).Self, category, name)
}

// TagMachine does the same with a machine.
func (v *VCenter) TagMachine(ctx context.Context, path, category, name string) error {
	return v.tag(ctx, v.find(path).Reference(), category, name)
}

func (v *VCenter) tag(ctx context.Context, object types.ManagedObjectReference, category, name string) error {
	return v.tagging(ctx, func(manager *tags.Manager) error {
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
		if err := manager.AttachTag(ctx, tag.ID, object); err != nil {
			return fmt.Errorf("attaching tag %s: %w", name, err)
		}
		return nil
	})
}

// TagsOf gives the names of the tags of the machine.
func (v *VCenter) TagsOf(ctx context.Context, path string) (names []string, err error) {
	err = v.tagging(ctx, func(manager *tags.Manager) error {
		attached, err := manager.GetAttachedTags(ctx, v.find(path).Reference())
		for _, tag := range attached {
			names = append(names, tag.Name)
		}
		return err
	})
	return names, err
}

// tagging does something with tags.
func (v *VCenter) tagging(ctx context.Context, do func(*tags.Manager) error) error {
	return v.rest(ctx, func(c *rest.Client) error { return do(tags.NewManager(c)) })
}

// rest logs in and out to make requests of the REST API.
func (v *VCenter) rest(ctx context.Context, requests func(*rest.Client) error) error {
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
	return requests(client)
}
